/*
 * restless.c: blocks whose contents are checked, in threads of which some work while others rest; and forks meanwhile.
 *
 *   restless SECONDS FORKS SEED
 *
 *   each of four threads   fill ─► free four fifths ─► rest, writing some blocks in place ─► check all ─► churn ─► fill …
 *   main                   the same once, then fork ─► child: checks main's blocks, frees, allocates, writes ─► its status
 *
 * It ends after SECONDS, or after FORKS children if that is not 0, and prints `same CHECKED forks FORKED`; with status 1 at the
 * first block that has other contents than it should, and at a child that ends with another status than 0. Contents, sizes,
 * what is freed and what goes to another thread come from the seed. A rest is as long as the purger takes to mesh.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, SLOTS = 24000, HANDED = 512, LARGEST = 6000 };

struct block {
    uint64_t *at;
    uint32_t bytes;
    uint64_t seed;
};

static _Atomic(struct block *) handed[HANDED];
static _Atomic int over;
static _Atomic uint64_t checked;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fill(struct block *block, uint64_t seed)
{
    uint64_t own = block->seed = seed | 1;
    for (uint32_t i = 0; i < block->bytes / 8; i++)
        block->at[i] = next(&own);
}

static void check(const struct block *block)
{
    uint64_t own = block->seed;
    for (uint32_t i = 0; i < block->bytes / 8; i++)
        if (block->at[i] != next(&own)) {
            printf("changed: word %u of %u bytes at %p\n", i, block->bytes, (void *)block->at);
            fflush(stdout);
            _exit(1);
        }
    atomic_fetch_add_explicit(&checked, 1, memory_order_relaxed);
}

static void take(struct block *block, uint64_t *state)
{
    uint64_t one = next(state);
    uint32_t most = 16u << (one % 10);
    block->bytes = (uint32_t)(16 + (one >> 8) % (most < LARGEST ? most : LARGEST)) & ~7u;
    int is_zeroed = (one >> 40) % 4 == 0;
    block->at = is_zeroed ? calloc(1, block->bytes) : malloc(block->bytes);
    for (uint32_t i = 0; is_zeroed && i < block->bytes / 8; i++)
        if (block->at[i] != 0) {
            printf("not zero: word %u of %u bytes at %p\n", i, block->bytes, (void *)block->at);
            fflush(stdout);
            _exit(1);
        }
    fill(block, next(state));
}

static void give(struct block *block)
{
    check(block);
    free(block->at);
    block->at = NULL;
}

/* One in eight goes to whoever comes next to that place: another thread frees it. */
static void give_or_hand(struct block *block, uint64_t *state)
{
    if (next(state) % 8) {
        give(block);
        return;
    }
    struct block *copy = malloc(sizeof *copy);
    *copy = *block;
    block->at = NULL;
    copy = atomic_exchange(&handed[next(state) % HANDED], copy);
    if (copy) {
        give(copy);
        free(copy);
    }
}

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void scatter(struct block *all, size_t slots, uint64_t *state)
{
    for (size_t i = 0; i < slots; i++)
        if (!all[i].at)
            take(&all[i], state);
    for (size_t i = 0; i < slots; i++)
        if (next(state) % 5)
            give_or_hand(&all[i], state);
}

static void churn(struct block *all, size_t slots, size_t steps, uint64_t *state)
{
    for (size_t step = 0; step < steps; step++) {
        struct block *block = &all[next(state) % slots];
        if (block->at)
            give_or_hand(block, state);
        else if (next(state) % 3 == 0)
            take(block, state);
    }
}

static void rest(struct block *all, size_t slots, uint64_t *state)
{
    for (long parts = 30 + (long)(next(state) % 60); parts > 0 && !atomic_load(&over); parts--) {
        pause_ms(100);
        for (int i = 0; i < 20; i++) {
            struct block *block = &all[next(state) % slots];
            if (block->at) {
                check(block);
                fill(block, next(state));
            }
        }
    }
}

static void *work(void *given)
{
    uint64_t state = (uintptr_t)given;
    struct block *all = calloc(SLOTS, sizeof *all);
    while (!atomic_load(&over)) {
        scatter(all, SLOTS, &state);
        rest(all, SLOTS, &state);
        for (size_t i = 0; i < SLOTS; i++)
            if (all[i].at)
                check(&all[i]);
        for (uint64_t turns = next(&state) % 40; turns > 0 && !atomic_load(&over); turns--) {
            churn(all, SLOTS, 5000, &state);
            pause_ms(20);
        }
    }
    for (size_t i = 0; i < SLOTS; i++)
        if (all[i].at)
            give(&all[i]);
    free(all);
    return NULL;
}

/* Ends by itself if it hangs, so that none is left behind. */
static int child(struct block *all, size_t slots, uint64_t state)
{
    alarm(30);
    for (size_t i = 0; i < slots; i++)
        if (all[i].at) {
            check(&all[i]);
            if (next(&state) % 4 == 0)
                fill(&all[i], next(&state));
        }
    for (int step = 0; step < 500; step++) {
        struct block *block = &all[next(&state) % slots];
        if (block->at)
            give(block);
        else
            take(block, &state);
    }
    for (size_t i = 0; i < slots; i++)
        if (all[i].at)
            check(&all[i]);
    return 0;
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    time_t until = time(NULL) + atol(arguments[1]);
    long forks = atol(arguments[2]), forked = 0;
    uint64_t state = strtoull(arguments[3], NULL, 10) * 2654435761u + 88172645463325252u;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(next(&state) | 1));
    size_t slots = 6000;
    struct block *all = calloc(slots, sizeof *all);
    scatter(all, slots, &state);
    while (time(NULL) < until && (forks == 0 || forked < forks)) {
        if (forks == 0 || forked % 500 == 0)
            rest(all, slots, &state);
        uint64_t seed = next(&state);
        pid_t pid = fork();
        if (pid == 0)
            _exit(child(all, slots, seed));
        int status = 1;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            printf("a child ended with status %d\n", status);
            return 1;
        }
        forked++;
        if (next(&state) % 8 == 0)
            churn(all, slots, 50, &state);
    }
    atomic_store(&over, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < slots; i++)
        if (all[i].at)
            give(&all[i]);
    printf("same %llu forks %ld\n", (unsigned long long)atomic_load(&checked), forked);
    return 0;
}
