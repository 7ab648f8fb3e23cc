/*
 * longjmp.c: setjmp and longjmp over many frames, with allocations before and after.
 *
 * 1000 rounds: recurse to a depth of 1 + round % 60, take 151 bytes there, longjmp to the top; take
 * 157 bytes at depth 1. Every block is freed but those of the last 10 rounds.
 *   1000 x 151, 10 live; 1000 x 157, 10 live. The stack of a 157 is main, top: no frame of the
 *   recursion that was jumped over may be left on it.
 */
#include "check.h"

#include <setjmp.h>

static jmp_buf back;
static void *volatile deep_block;

NOINLINE static void descend(int depth)
{
    if (depth > 0) {
        descend(depth - 1);
        NO_TAIL_CALL();
        return; /* never: the deepest frame jumps, which the compiler need not know */
    }
    deep_block = must_malloc(151);
    if (deep_block)
        longjmp(back, 1);
}

NOINLINE static void *top(void)
{
    void *block = must_malloc(157);
    NO_TAIL_CALL();
    return block;
}

int main(void)
{
    for (volatile int round = 0; round < 1000; round++) {
        if (setjmp(back) == 0)
            descend(round % 60);
        void *block = top();
        if (round < 990) {
            free(block);
            free(deep_block);
        }
    }
    say("longjmp: 1000 rounds\n");
    return 0;
}
