/* Planted: each turn makes a block of BYTES and drops it. Mended: one block serves all. */
#include <stdlib.h>
#include <string.h>
static void *volatile block;

__attribute__((noinline)) static void turn(int i)
{
#ifdef MENDED
    if (!block)
        block = malloc(BYTES);
#else
    block = malloc(BYTES);
#endif
    memset(block, i, BYTES);
#ifndef MENDED
    free(block);
#endif
}

int main(void)
{
    for (int i = 0; i < COUNT; i++)
        turn(i);
    return 0;
}
