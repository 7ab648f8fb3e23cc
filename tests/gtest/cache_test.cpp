/*
 * cache_test.cpp: a suite of GoogleTest with budgets of memory, as a user of skinflint_gtest.h writes it.
 *
 * Usable bytes are those of glibc (tests/programs/predicted.c):
 *   Forgets    200 x 200 (200 given), one after another, freed: 202 allocations with GoogleTest's two, nothing left
 *   Remembers  10 x 100 (104 given), kept: growth 1040
 *   Sorts      1 x 1000000 (anonymous mapping: 1003504 given), freed: peak
 *   Unbound    as Remembers, with 20 blocks, and no budget of its own: growth 2080
 *
 * Not here: verdicts (faces/cli/tests/check/gtest.rs). With LEAK in the environment Forgets keeps one block.
 */
#include "skinflint_gtest.h"

#include <cstdlib>

SKINFLINT_GTEST;

namespace {

void *kept[64];

void *made(size_t size)
{
    void *block = std::malloc(size);
    /* Out of the compiler's sight: a block that nothing reads need not be made. */
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

__attribute__((noinline)) void remember(int from, int count)
{
    for (int i = from; i < from + count; i++)
        kept[i] = made(100);
}

TEST(Cache, Forgets)
{
    SKINFLINT_BUDGET("growth=0 allocations=202 peak-live=1KiB");
    for (int i = 0; i < 200; i++) {
        void *block = made(200);
        if (i == 7 && std::getenv("LEAK"))
            kept[63] = block;
        else
            std::free(block);
    }
}

TEST(Cache, Remembers)
{
    SKINFLINT_BUDGET("growth=1040");
    remember(0, 10);
}

TEST(Cache, Sorts)
{
    SKINFLINT_BUDGET("peak-live=1MiB,growth=0");
    std::free(made(1000000));
}

TEST(Cache, Unbound)
{
    remember(10, 20);
}

/* A name beyond what a mark holds is cut, and known by a number. */
TEST(Cache, AVeryLongNameOfATestThatGoesOnAndOnUntilNoMarkHoldsItAndOneMoreWordToBeSureOfThat)
{
    SKINFLINT_BUDGET("growth=0");
}

} // namespace
