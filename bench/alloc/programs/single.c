/* Patterns of one thread: pairs, stacks, random sets, growth, large blocks. Rules in pattern.h. */
#include "pattern.h"

#include <stdlib.h>
#include <string.h>

/* One malloc and one free of a size, nothing else alive: the fast path and nothing beside it. */
#define PAIRS(take_one, give_one, bytes, scale)                                                                       \
    for (uint64_t i = 0; i < (scale); i++) {                                                                          \
        unsigned char *at = take_one(bytes);                                                                          \
        if (!at) die("pattern: malloc returned null");                                                                \
        *(volatile unsigned char *)at = (unsigned char)i;                                                             \
        if (*(volatile unsigned char *)at != (unsigned char)i) die("pattern: a block's content has changed");         \
        give_one(at);                                                                                                 \
    }

static uint64_t pair_of(size_t bytes, uint64_t scale) {
    PAIRS(malloc, free, bytes, scale);
    return scale;
}

/* The same while other blocks of the size live: the span or page is never empty, as in nearly all programs. */
static uint64_t pair_held(uint64_t scale) {
    block_t held[20];
    for (int i = 0; i < 20; i++) held[i] = take(48);
    PAIRS(malloc, free, 48, scale);
    for (int i = 0; i < 20; i++) give(held[i]);
    return scale;
}

/* The loop alone: functions of three instructions in all (two and a return of one) stand in for malloc and free.
 * start.py subtracts it, less those three, plus the two jumps through the table by which the real ones are reached. */
static unsigned char null_block[64];
__attribute__((noipa)) static unsigned char *null_take(size_t bytes) { return (void)bytes, null_block; }
__attribute__((noipa)) static void null_give(void *at) { (void)at; }

static uint64_t pair_null(uint64_t scale) {
    PAIRS(null_take, null_give, 48, scale);
    return scale;
}

static uint64_t pair48(uint64_t scale) { return pair_of(48, scale); }
static uint64_t pair400k(uint64_t scale) { return pair_of(400 * 1024, scale); }
static uint64_t pair5m(uint64_t scale) { return pair_of(5 * 1024 * 1024, scale); }

static uint64_t lifo(uint64_t scale) {
    block_t *stack = harness_map(1000 * sizeof *stack);
    for (uint64_t round = 0; round < scale; round++) {
        for (int i = 0; i < 1000; i++) stack[i] = take(64);
        for (int i = 999; i >= 0; i--) give(stack[i]);
    }
    return scale * 1000;
}

/* Replaces random slots of a set by blocks of sizes between low and high. */
static uint64_t replace(size_t slots, size_t low, size_t high, uint64_t scale, uint64_t seed) {
    block_t *set = harness_map(slots * sizeof *set);
    rng_t rng = {seed};
    for (uint64_t i = 0; i < scale; i++) {
        block_t *slot = &set[rng_below(&rng, slots)];
        give_slot(slot);
        *slot = take(rng_between(&rng, low, high));
    }
    for (size_t i = 0; i < slots; i++) give_slot(&set[i]);
    return scale;
}

static uint64_t rand100k(uint64_t scale) { return replace(100000, 16, 515, scale, 1); }
static uint64_t rand2k(uint64_t scale) { return replace(2000, 1024, 31 * 1024, scale, 2); }

static uint64_t calloc450(uint64_t scale) {
    enum { SLOTS = 512 };
    block_t *set = harness_map(SLOTS * sizeof *set);
    rng_t rng = {3};
    for (uint64_t i = 0; i < scale; i++) {
        block_t *slot = &set[rng_below(&rng, SLOTS)];
        give_slot(slot);
        size_t bytes = rng_between(&rng, 400, 500);
        *slot = (block_t){calloc(1, bytes), (uint32_t)bytes, (uint32_t)i};
        if (!slot->at) die("pattern: calloc returned null");
        if (slot->at[0] || slot->at[bytes / 2] || slot->at[bytes - 1]) die("pattern: calloc gave a block that is not zero");
        memset(slot->at, 0xff, bytes);
        stamp(*slot);
    }
    for (int i = 0; i < SLOTS; i++) give_slot(&set[i]);
    return scale;
}

/* Grows a block from 16 bytes to a limit, the next size by `next`; one step is one realloc. */
static uint64_t grow(uint64_t rounds, size_t limit, size_t (*next)(size_t)) {
    uint64_t steps = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        size_t bytes = 16;
        uint64_t *at = malloc(bytes);
        if (!at) die("pattern: malloc returned null");
        at[0] = ~round;
        while (bytes < limit) {
            bytes = next(bytes);
            at = realloc(at, bytes);
            if (!at) die("pattern: realloc returned null");
            if (at[0] != ~round) die("pattern: realloc lost the content");
            at[bytes / 8 - 1] = at[0];
            steps++;
        }
        free(at);
    }
    return steps;
}

static size_t step16(size_t bytes) { return bytes + 16; }
static size_t doubled(size_t bytes) { return bytes * 2; }

static uint64_t realloc16(uint64_t scale) { return grow(scale, 64 * 1024, step16); }
static uint64_t realloc_big(uint64_t scale) { return grow(scale, 2 * 1024 * 1024, step16); }
static uint64_t realloc_double(uint64_t scale) { return grow(scale, 16 * 1024 * 1024, doubled); }

/* Sizes from a power law, half below 64 bytes, random slots of a set that fills and drains. */
static size_t power_law(rng_t *rng) {
    unsigned shift = (unsigned)__builtin_ctzll(rng_next(rng) | (1u << 10));
    return rng_between(rng, 16u << shift, 32u << shift);
}

static void alloc_test(worker_t *self, uint64_t scale) {
    enum { SLOTS = 1 << 15 };
    block_t *set = harness_map(SLOTS * sizeof *set);
    for (uint64_t i = 0; i < scale; i++) {
        block_t *slot = &set[rng_below(&self->rng, SLOTS)];
        if (slot->at) {
            give_slot(slot);
        } else {
            *slot = take(power_law(&self->rng) & 0xfff);
        }
    }
    for (int i = 0; i < SLOTS; i++) give_slot(&set[i]);
    self->ops = scale;
}

static void *alloc_test_body(void *given) {
    worker_t *self = given;
    alloc_test(self, self->scale);
    return NULL;
}

static uint64_t alloc_test1(uint64_t scale) {
    worker_t self = {0, 1, scale, {4}, 0, NULL};
    alloc_test(&self, scale);
    return self.ops;
}

/* Twenty buffers of 5 to 25 MB, each filled a page at a time, replaced at random. */
static uint64_t large(uint64_t scale) {
    enum { SLOTS = 20 };
    block_t set[SLOTS] = {{0}};
    rng_t rng = {5};
    for (uint64_t i = 0; i < scale; i++) {
        block_t *slot = &set[rng_below(&rng, SLOTS)];
        give_slot(slot);
        *slot = take(rng_between(&rng, 5u << 20, 25u << 20));
        for (size_t at = 4096; at + 4096 < slot->bytes; at += 4096) slot->at[at] = (unsigned char)at;
    }
    for (int i = 0; i < SLOTS; i++) give_slot(&set[i]);
    return scale;
}

/* Mixed sizes of 1 to 1000 bytes, small ones more often; each generation of blocks dies in random order. */
static void sh_like(worker_t *self) {
    enum { LIVE = 6000 };
    block_t *set = harness_map(LIVE * sizeof *set);
    for (uint64_t round = 0; round < self->scale; round++) {
        for (int i = 0; i < LIVE; i++) {
            uint64_t most = rng_between(&self->rng, 1, 1000);
            block_t fresh = take(rng_between(&self->rng, 1, most));
            block_t *slot = &set[rng_below(&self->rng, LIVE)];
            give_slot(slot);
            *slot = fresh;
        }
        self->ops += LIVE;
    }
    for (int i = 0; i < LIVE; i++) give_slot(&set[i]);
}

static void *sh_body(void *given) {
    sh_like(given);
    return NULL;
}

static uint64_t sh1(uint64_t scale) {
    worker_t self = {0, 1, scale, {6}, 0, NULL};
    sh_like(&self);
    return self.ops;
}

/* As glibc's own bench: a chain of blocks of one size taken, then given back, a size after the other. */
static void glibc_like(worker_t *self) {
    enum { CHAIN = 400 };
    static const size_t sizes[] = {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
    block_t *chain = harness_map(CHAIN * sizeof *chain);
    for (uint64_t round = 0; round < self->scale; round++) {
        size_t bytes = sizes[round % 10];
        for (int i = 0; i < CHAIN; i++) chain[i] = take(bytes);
        for (int i = 0; i < CHAIN; i++) give(chain[i]);
        self->ops += CHAIN;
    }
}

static void *glibc_body(void *given) {
    glibc_like(given);
    return NULL;
}

static uint64_t glibc_simple(uint64_t scale) {
    worker_t self = {0, 1, scale, {0}, 0, NULL};
    glibc_like(&self);
    return self.ops;
}

const pattern_t single_patterns[] = {
    {"pair48", pair48, 10000000, "malloc(48), free"},
    {"pair48-held", pair_held, 10000000, "the same beside 20 blocks of the size"},
    {"lifo", lifo, 4000, "1,000 blocks of 64 bytes, given back last first"},
    {"rand100k", rand100k, 2000000, "100,000 slots, 16 to 515 bytes, replaced at random"},
    {"rand2k", rand2k, 1000000, "2,000 slots, 1 to 31 KiB, replaced at random"},
    {"calloc450", calloc450, 3000000, "calloc of 400 to 500 bytes, filled, given back"},
    {"realloc16", realloc16, 400, "realloc in steps of 16 bytes to 64 KiB"},
    {"realloc-big", realloc_big, 10, "realloc in steps of 16 bytes to 2 MiB"},
    {"realloc-double", realloc_double, 300, "realloc doubling from 16 bytes to 16 MiB"},
    {"pair400k", pair400k, 1000000, "malloc(400 KiB), first byte written, free"},
    {"pair5m", pair5m, 50000, "malloc(5 MiB), first byte written, free"},
    {"alloctest1", alloc_test1, 3000000, "32,768 slots, sizes by a power law to 4 KiB"},
    {"large", large, 300, "20 buffers of 5 to 25 MB, every page written"},
    {"sh1", sh1, 400, "1 to 1,000 bytes, random lifetimes"},
    {"glibc-simple", glibc_simple, 10000, "chains of 400 blocks of ten sizes"},
    {NULL, NULL, 0, NULL},
};

const pattern_t hidden_patterns[] = {
    {"pair-null", pair_null, 10000000, "the loop of pair48 without malloc"},
    {NULL, NULL, 0, NULL},
};

/* The same work in several threads, nothing handed from one to another. */
static uint64_t alloc_test2(uint64_t scale) { return run_workers(2, scale, 7, NULL, alloc_test_body); }
static uint64_t sh4(uint64_t scale) { return run_workers(4, scale, 8, NULL, sh_body); }
static uint64_t glibc_thread(uint64_t scale) { return run_workers(2, scale, 9, NULL, glibc_body); }

static void *large_body(void *given) {
    worker_t *self = given;
    enum { SLOTS = 6 };
    block_t set[SLOTS] = {{0}};
    for (uint64_t i = 0; i < self->scale; i++) {
        block_t *slot = &set[rng_below(&self->rng, SLOTS)];
        give_slot(slot);
        *slot = take(rng_between(&self->rng, 40u << 10, 4u << 20));
        for (size_t at = 4096; at + 4096 < slot->bytes; at += 4096) slot->at[at] = (unsigned char)at;
    }
    for (int i = 0; i < SLOTS; i++) give_slot(&set[i]);
    self->ops = self->scale;
    return NULL;
}

static uint64_t large2(uint64_t scale) { return run_workers(2, scale, 10, NULL, large_body); }

const pattern_t thread_patterns[] = {
    {"alloctest2", alloc_test2, 4000000, "alloctest1 in 2 threads"},
    {"sh4", sh4, 250, "sh1 in 4 threads"},
    {"glibc-thread", glibc_thread, 8000, "glibc-simple in 2 threads"},
    {"large2", large2, 1500, "2 threads, 6 buffers each of 40 KB to 4 MB, every page written"},
    {NULL, NULL, 0, NULL},
};
