/* BUFFERS that grow in turns. Planted: by so many bytes as STEP says (PAGES: to the next multiple of it). Mended: they
 * double. HALF: a control, by a half. */
#include <stdlib.h>
#include <string.h>
struct buffer {
    char *at;
    size_t length, room;
};
static struct buffer all[BUFFERS];

__attribute__((noinline)) static void extend(struct buffer *to, size_t more)
{
    if (to->length + more > to->room) {
#if defined MENDED
        size_t room = to->room ? to->room * 2 : STEP;
        while (room < to->length + more)
            room *= 2;
#elif defined HALF
        size_t room = to->room ? to->room + to->room / 2 : 2 * STEP;
        while (room < to->length + more)
            room += room / 2;
#elif defined PAGES
        size_t room = (to->length + more + STEP - 1) / STEP * STEP;
#else
        size_t room = to->room + STEP;
        while (room < to->length + more)
            room += STEP;
#endif
        to->at = realloc(to->at, room);
        to->room = room;
    }
    memset(to->at + to->length, 1, more);
    to->length += more;
}

int main(void)
{
    for (int i = 0; i < LINES; i++)
        for (int b = 0; b < BUFFERS; b++)
            extend(&all[b], 40 + (i * 7 + b) % 60);
    return 0;
}
