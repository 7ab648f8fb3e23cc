/*
 * tide.c: 8 MiB that come and go every tenth of a second, twenty times.
 *
 * 256 blocks of 32,768 bytes, a class without slop, are acquired; after 60 ms all are freed; after
 * 60 ms it begins again. 5,120 acquisitions, all released. The tide is in while it runs, so of what
 * is freed all is wanted again: 8 MiB, 2,048 pages. 60 ms are more than a step of the fit's clock, so
 * that coming and going do not fall into one.
 */
#include "check.h"
#include <time.h>

static void *held[256];

static void rest(void)
{
    struct timespec left = {0, 60 * 1000 * 1000};
    /* CLOCK: a tide takes so long at least */
    while (nanosleep(&left, &left) != 0)
        CHECK(errno == EINTR);
}

int main(void)
{
    for (int tide = 0; tide < 20; tide++) {
        for (int i = 0; i < 256; i++)
            held[i] = must_malloc(32768);
        rest();
        for (int i = 0; i < 256; i++)
            free(held[i]);
        rest();
    }
    say("tide: 20 times 8 MiB\n");
    return 0;
}
