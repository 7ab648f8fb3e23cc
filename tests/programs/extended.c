/*
 * extended.c: jemalloc's own functions, where they are there.
 *
 * Without jemalloc: "extended: none", and nothing is allocated. With it: 1,000 x mallocx(250), of which 400 go by
 * dallocx and 100 by sdallocx; one is grown to 5,000 by rallocx; one of 300 is asked by xallocx for 310, which it
 * has already (classes of 320), and for 100,000, which it cannot have where it is.
 * Left: 499 x 250, 1 x 5,000, 1 x 300. Prints how much all of them have, as sallocx says.
 */
#include "check.h"

#define WEAK __attribute__((weak))
extern WEAK void *mallocx(size_t size, int flags);
extern WEAK void *rallocx(void *block, size_t size, int flags);
extern WEAK size_t xallocx(void *block, size_t size, size_t extra, int flags);
extern WEAK size_t sallocx(const void *block, int flags);
extern WEAK void dallocx(void *block, int flags);
extern WEAK void sdallocx(void *block, size_t size, int flags);

static void *blocks[1000];
static void *odd;

NOINLINE static void fill(void)
{
    for (int i = 0; i < 1000; i++) {
        blocks[i] = mallocx(250, 0);
        CHECK(blocks[i] != NULL);
    }
    odd = mallocx(300, 0);
    NO_TAIL_CALL();
}

NOINLINE static void change(void)
{
    for (int i = 0; i < 400; i++)
        dallocx(blocks[i], 0);
    for (int i = 400; i < 500; i++)
        sdallocx(blocks[i], 250, 0);
    blocks[500] = rallocx(blocks[500], 5000, 0);
    CHECK(xallocx(odd, 310, 0, 0) >= 310);
    CHECK(xallocx(odd, 100000, 0, 0) < 100000);
    NO_TAIL_CALL();
}

int main(void)
{
    size_t all = 0;
    if (!mallocx) {
        say("extended: none\n");
        return 0;
    }
    fill();
    change();
    for (int i = 500; i < 1000; i++)
        all += sallocx(blocks[i], 0);
    say("extended: %zu\n", all + sallocx(odd, 0));
    return 0;
}
