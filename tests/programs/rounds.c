/*
 * rounds.c: rounds that leave memory behind, for budgets.
 *
 * Usable bytes are those of glibc (predicted.c). In this order:
 *   warm            1 x 10000 (10008 given), kept: in the first interval between marks
 *   leak            after each of the marks "round" 2 to 5 (of 6) 10 x 100 (104 given), all kept
 *   churn           in each of the 6 rounds 50 x 200 (200 given), all freed
 * Live at the end: 1 + 40 blocks, 10008 + 4160 = 14168 bytes given. Each interval from the second mark on adds 1040.
 * Allocations: 1 + 40 + 300 = 341. The most that lives is 14168 + 200 in the last round.
 */
#include "check.h"
#include "skinflint.h"

static void *kept[41];

NOINLINE static void warm(void)
{
    kept[40] = must_malloc(10000);
}

NOINLINE static void leak(int from)
{
    for (int i = from; i < from + 10; i++)
        kept[i] = must_malloc(100);
}

NOINLINE static void churn(void)
{
    for (int i = 0; i < 50; i++)
        free(must_malloc(200));
}

int main(void)
{
    for (int round = 1; round <= 6; round++) {
        skinflint_mark("round");
        if (round == 1)
            warm();
        else if (round < 6)
            leak(10 * (round - 2));
        churn();
    }
    void **held = kept;
    OPAQUE(held);
    say("rounds: 341 blocks, 41 live\n");
    return 0;
}
