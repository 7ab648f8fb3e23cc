/* Control: a ring of SLOTS messages, of which the oldest is overwritten, and two pictures that are drawn in turns. REST:
 * then only one is shown, for a while. Planted under glibc: the pages of the other stay. Mended: malloc_trim gives them back. */
#include "skinflint.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static char *ring[SLOTS];

__attribute__((noinline)) static char *message(size_t bytes)
{
    char *it = malloc(bytes);
    memset(it, 1, bytes);
    return it;
}

__attribute__((noinline)) static char *picture(void)
{
    char *it = malloc(BYTES);
    memset(it, 1, BYTES);
    return it;
}

int main(void)
{
    char *front = picture();
    for (int i = 0; i < COUNT; i++) {
        free(ring[i % SLOTS]);
        ring[i % SLOTS] = message(100 + i * 37 % 1900);
        if (i % 50 == 0) {
            char *back = picture();
            free(front);
            front = back;
        }
    }
#ifdef REST
#ifdef MENDED
    malloc_trim(0);
#endif
    /* CLOCK: the program is to be at rest for a while; nothing is judged by how long that takes. */
    struct timespec rest = {0, 400000000};
    nanosleep(&rest, 0);
    skinflint_mark("rest");
    /* CLOCK: as above. */
    nanosleep(&rest, 0);
    for (int i = 0; i < SLOTS; i++) {
        free(ring[i]);
        ring[i] = message(100);
    }
#endif
    return 0;
}
