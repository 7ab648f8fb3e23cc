/* BUFFERS buffers appended to in turns, STEPS times STEP bytes. Planted: each makes room for what comes. Mended: room is
 * doubled. BY_HAND: allocate, copy, release instead of realloc. ALONE: one buffer after the other. */
#include <stdlib.h>
#include <string.h>
struct buffer {
    char *data;
    size_t used, room;
};
static struct buffer all[BUFFERS];

__attribute__((noinline)) static void append(struct buffer *to)
{
    if (to->used + STEP > to->room) {
#ifdef MENDED
        to->room = to->room ? to->room * 2 : STEP;
#else
        to->room = to->used + STEP;
#endif
#ifdef BY_HAND
        char *larger = malloc(to->room);
        if (to->used)
            memcpy(larger, to->data, to->used);
        free(to->data);
        to->data = larger;
#else
        to->data = realloc(to->data, to->room);
#endif
    }
    memset(to->data + to->used, 1, STEP);
    to->used += STEP;
}

int main(void)
{
#ifdef ALONE
    for (int i = 0; i < BUFFERS; i++) {
        for (int step = 0; step < STEPS; step++)
            append(&all[i]);
        if (ALONE)
            free(all[i].data);
    }
#else
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < BUFFERS; i++)
            append(&all[i]);
#endif
    return 0;
}
