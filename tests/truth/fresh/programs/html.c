/* A report writer: 60 sections of a page are filled in turns, and each piece of text is appended by making a new string of
 * the right length. Mended: a string has a capacity, which doubles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

struct text { char *s; size_t length, capacity; };
enum { SECTIONS = 60, ROWS = 700 };

static void append(struct text *t, const char *piece)
{
    size_t more = strlen(piece);
#ifdef MENDED
    if (t->length + more + 1 > t->capacity) {
        t->capacity = (t->length + more + 1) * 2;
        t->s = realloc(t->s, t->capacity);
    }
    memcpy(t->s + t->length, piece, more + 1);
#else
    char *longer = malloc(t->length + more + 1);
    if (t->s)
        memcpy(longer, t->s, t->length);
    memcpy(longer + t->length, piece, more + 1);
    free(t->s);
    t->s = longer;
#endif
    t->length += more;
}

int main(void)
{
    static struct text sections[SECTIONS];
    char *template = malloc(4 << 20);
    memset(template, '.', 4 << 20);
    char piece[128];
    size_t sum = 0;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < SECTIONS; i++) {
            snprintf(piece, sizeof piece, "<tr><td>%d</td><td class=n>%u</td></tr>\n", row, seeded(1000000));
            append(&sections[i], piece);
        }
    for (int i = 0; i < SECTIONS; i++)
        sum += sections[i].length + sections[i].s[sections[i].length - 2] + template[seeded(4 << 20)];
    printf("%zu\n", sum);
    return 0;
}
