/*
 * recursion.c: a stack 20000 deep with an allocation in each frame.
 *
 * Down: each of 20000 frames takes 31 bytes; up: each frees its own, but for every 1000th frame:
 * 20000 x 31, 20 live. At the bottom 1000 x 37, freed one by one: the same deep stack each time.
 */
#include "check.h"

NOINLINE static int descend(int depth)
{
    void *block = must_malloc(31);
    int below = 0;
    if (depth > 1) {
        below = descend(depth - 1);
    } else {
        for (int i = 0; i < 1000; i++) {
            void *bottom = must_malloc(37);
            free(bottom);
        }
    }
    if (depth % 1000 != 0)
        free(block);
    NO_TAIL_CALL();
    return below + 1;
}

int main(void)
{
    say("recursion: %d frames\n", descend(20000));
    return 0;
}
