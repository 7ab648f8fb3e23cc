/*
 * fibres.c: fibres by makecontext and swapcontext, on stacks from malloc and from mmap, freed and
 * used again, with allocations inside.
 *
 *   20 rounds of 8 fibres; fibres 0-3 of each round have a malloc'ed stack of 65536 bytes (80 x
 *   65536, freed at the end of the round), 4-7 an mmapped one (80 maps of 65536, unmapped).
 *   Each fibre takes 5 x 401 bytes, yields to main after each, frees 4 of them before it ends:
 *   800 x 401, 160 live at the end. The fifth is taken at depth 10 of a recursion.
 *   Main takes 1 x 409 between any two switches back to it: 20 x 8 x 5 = 800 x 409, all freed.
 */
#include "check.h"

#include <sys/mman.h>
#include <ucontext.h>

enum { FIBRES = 8, ROUNDS = 20, BLOCKS = 5, STACK_BYTES = 65536 };

static ucontext_t main_context, contexts[FIBRES];
static int done[FIBRES];
static int switches;

NOINLINE static void *deep(int depth)
{
    void *block = depth ? deep(depth - 1) : must_malloc(401);
    NO_TAIL_CALL();
    return block;
}

NOINLINE static void fibre(int index)
{
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = i == BLOCKS - 1 ? deep(10) : must_malloc(401);
        CHECK(swapcontext(&contexts[index], &main_context) == 0);
    }
    for (int i = 0; i < BLOCKS - 1; i++)
        free(blocks[i]);
    done[index] = 1;
}

NOINLINE static void between_switches(void)
{
    void *block = must_malloc(409);
    free(block);
    switches++;
}

static void round_of_fibres(void)
{
    char *stacks[FIBRES];
    for (int i = 0; i < FIBRES; i++) {
        if (i < FIBRES / 2)
            stacks[i] = must_malloc(STACK_BYTES);
        else
            stacks[i] = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        CHECK(stacks[i] != MAP_FAILED);
        CHECK(getcontext(&contexts[i]) == 0);
        contexts[i].uc_stack.ss_sp = stacks[i];
        contexts[i].uc_stack.ss_size = STACK_BYTES;
        contexts[i].uc_link = &main_context;
        done[i] = 0;
        makecontext(&contexts[i], (void (*)(void))fibre, 1, i);
    }
    for (int step = 0; step < BLOCKS + 1; step++)
        for (int i = 0; i < FIBRES; i++) {
            CHECK(swapcontext(&main_context, &contexts[i]) == 0);
            if (step < BLOCKS)
                between_switches();
        }
    for (int i = 0; i < FIBRES; i++) {
        CHECK(done[i]);
        if (i < FIBRES / 2)
            free(stacks[i]);
        else
            CHECK(munmap(stacks[i], STACK_BYTES) == 0);
    }
}

int main(void)
{
    for (int i = 0; i < ROUNDS; i++)
        round_of_fibres();
    say("fibres: %d of them, %d switches\n", ROUNDS * FIBRES, switches);
    return 0;
}
