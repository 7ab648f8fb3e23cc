/* An event loop: each event is a block, posted to a ring of at most 16 and released when it has been handled.
 * Mended: handled events go to a list from which the next are taken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

struct event { struct event *next; int kind; unsigned target; char data[72]; };
enum { RING = 16, EVENTS = 1200000, TARGETS = 400000 };
static struct event *ring[RING], *spare;
static unsigned head, tail, *state;

static void event_post(int kind, unsigned target)
{
    struct event *e = spare;
    if (e)
        spare = e->next;
    else
        e = malloc(sizeof *e);
    e->kind = kind;
    e->target = target;
    memset(e->data, kind, sizeof e->data);
    ring[head++ % RING] = e;
}

static void handle(void)
{
    struct event *e = ring[tail++ % RING];
    state[e->target] += e->data[e->kind];
#ifdef MENDED
    e->next = spare;
    spare = e;
#else
    free(e);
#endif
}

int main(void)
{
    unsigned sum = 0;
    state = calloc(TARGETS, sizeof *state);
    for (int i = 0; i < TARGETS; i++)
        state[i] = i;
    for (int i = 0; i < EVENTS;) {
        for (unsigned room = 1 + seeded(RING - (head - tail)); room--; i++)
            event_post(i % 9, seeded(TARGETS));
        while (head - tail > seeded(4))
            handle();
    }
    for (int i = 0; i < TARGETS; i++)
        sum += state[i];
    printf("%u\n", sum);
    return 0;
}
