/* Planted: a pool of POOL buffers is filled, and never taken from. Mended: there is no pool. ASKED: a control, whose pool
 * is taken from. */
#include <stdlib.h>
#include <string.h>
static void *pool[POOL];
static int filled;

__attribute__((noinline)) static void *buffer(void)
{
#ifdef ASKED
    if (filled)
        return pool[--filled];
#endif
    void *it = malloc(BYTES);
    memset(it, 1, BYTES);
    return it;
}

static void give(void *it)
{
#ifndef MENDED
    if (filled < POOL) {
        pool[filled++] = it;
        return;
    }
#endif
    free(it);
}

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        void *one = buffer(), *other = buffer();
        give(one);
        give(other);
    }
    return 0;
}
