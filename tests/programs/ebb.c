/*
 * ebb.c: 8 MiB that are freed all at once, and seven tenths of a second without a call.
 *
 * 4,096 blocks of 2,040 bytes are filled, then one of 3,000 that keeps them from the end of the heap; they are freed, and
 * glibc keeps 8 MiB, 2,048 pages. The rest is shorter than the collector's period of two seconds.
 */
#include "check.h"
#include <time.h>

static void *held[4096];

int main(void)
{
    for (int i = 0; i < 4096; i++) {
        held[i] = must_malloc(2040);
        memset(held[i], 1, 2040);
    }
    void *last = must_malloc(3000);
    OPAQUE(last);
    for (int i = 0; i < 4096; i++)
        free(held[i]);
    struct timespec left = {0, 700 * 1000 * 1000};
    /* CLOCK: it rests so long at least */
    while (nanosleep(&left, &left) != 0)
        CHECK(errno == EINTR);
    say("ebb: 8 MiB\n");
    return 0;
}
