/* A pattern is looked for at the beginning of each line by stepping a set of states along it; each step asks for a new set.
 * Mended: two sets are made for each line, and change places. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { STATES = 9, LINES = 9000, WIDE = 960, LONG = 120 };
struct set { int count; int state[STATES + 1]; };
static const char pattern[] = "ab*c.d*ea"; /* `*` counts as "any number of the letter before" */
static char *text;

static void add(struct set *s, int state)
{
    for (int i = 0; i < s->count; i++)
        if (s->state[i] == state)
            return;
    s->state[s->count++] = state;
    if (pattern[state] && pattern[state + 1] == '*')
        add(s, state + 2);
}

static struct set *step(const struct set *from, char c, struct set *spare)
{
#ifdef MENDED
    struct set *next = spare;
#else
    struct set *next = malloc(sizeof *next);
#endif
    next->count = 0;
    add(next, 0);
    for (int i = 0; i < from->count; i++) {
        int state = from->state[i];
        int star = pattern[state] && pattern[state + 1] == '*';
        if (pattern[state] == '.' || pattern[state] == c)
            add(next, star ? state : state + 1);
    }
    return next;
}

static int search(const char *line)
{
    int found = 0;
    struct set *now = malloc(sizeof *now), *spare = NULL;
#ifdef MENDED
    spare = malloc(sizeof *spare);
#endif
    now->count = 0;
    add(now, 0);
    for (int i = 0; i < LONG; i++) {
        struct set *next = step(now, line[i], spare);
        for (int k = 0; k < next->count; k++)
            found += !pattern[next->state[k]];
#ifdef MENDED
        spare = now;
#else
        free(now);
#endif
        now = next;
    }
    free(now);
    free(spare);
    return found;
}

int main(void)
{
    int found = 0;
    text = malloc(LINES * WIDE);
    for (int i = 0; i < LINES * WIDE; i++)
        text[i] = 'a' + roll(5);
    for (int i = 0; i < LINES; i++)
        found += search(text + i * WIDE);
    printf("%d\n", found);
    free(text);
    return 0;
}
