/* Patterns in which blocks pass from one thread to another, or outlive the thread that took them. Rules in pattern.h. */
#include "pattern.h"

#include <stdlib.h>
#include <string.h>

/* Larson: each generation of threads replaces random slots of an array, then hands the array to its successor, so
 * that most blocks are given back by another thread than the one that took them. */
enum { LARSON_SLOTS = 2000, LARSON_THREADS = 2, LARSON_STEPS = 20000 };
typedef struct {
    block_t slots[LARSON_THREADS][LARSON_SLOTS];
} larson_t;

static void *larson_body(void *given) {
    worker_t *self = given;
    larson_t *shared = self->shared;
    block_t *slots = shared->slots[self->index];
    for (int i = 0; i < LARSON_STEPS; i++) {
        block_t *slot = &slots[rng_below(&self->rng, LARSON_SLOTS)];
        give_slot(slot);
        *slot = take(rng_between(&self->rng, 10, 500));
    }
    self->ops = LARSON_STEPS;
    return NULL;
}

static uint64_t larson(uint64_t scale) {
    larson_t *shared = harness_map(sizeof *shared);
    uint64_t ops = 0;
    for (uint64_t generation = 0; generation < scale; generation++) {
        ops += run_workers(LARSON_THREADS, 0, 11 + generation * 31, shared, larson_body);
        block_t kept[LARSON_SLOTS];
        memcpy(kept, shared->slots[0], sizeof kept);
        memcpy(shared->slots[0], shared->slots[1], sizeof kept);
        memcpy(shared->slots[1], kept, sizeof kept);
    }
    for (int t = 0; t < LARSON_THREADS; t++)
        for (int i = 0; i < LARSON_SLOTS; i++) give_slot(&shared->slots[t][i]);
    return ops;
}

/* Two threads that both take batches and give back the other's: the queues cross. */
typedef struct {
    queue_t *queues[2];
} crossed_t;

static void fill_batch(worker_t *self, block_t *batch, size_t low, size_t high) {
    for (int i = 0; i < BATCH; i++) batch[i] = take(rng_between(&self->rng, low, high));
    self->ops += BATCH;
}

static void give_batch(block_t *batch) {
    for (int i = 0; i < BATCH; i++) give(batch[i]);
}

static void *xmalloc_body(void *given) {
    worker_t *self = given;
    crossed_t *shared = self->shared;
    queue_t *mine = shared->queues[self->index], *other = shared->queues[1 - self->index];
    block_t out[BATCH], in[BATCH];
    for (uint64_t i = 0; i < self->scale; i++) {
        fill_batch(self, out, 16, 256);
        queue_put(other, out);
        if (i >= QUEUE / 2 && queue_get(mine, in)) give_batch(in);
    }
    queue_close(other);
    while (queue_get(mine, in)) give_batch(in);
    return NULL;
}

static uint64_t xmalloc(uint64_t scale) {
    crossed_t shared = {{queue_new(), queue_new()}};
    return run_workers(2, scale, 12, &shared, xmalloc_body);
}

/* One thread only takes, the other only gives back. */
static void producer(worker_t *self, queue_t *queue, size_t low, size_t high) {
    block_t batch[BATCH];
    for (uint64_t i = 0; i < self->scale; i++) {
        fill_batch(self, batch, low, high);
        queue_put(queue, batch);
    }
    queue_close(queue);
}

static void consumer(queue_t *queue) {
    block_t batch[BATCH];
    while (queue_get(queue, batch)) give_batch(batch);
}

static void *prodcons_body(void *given) {
    worker_t *self = given;
    if (self->index == 0) producer(self, self->shared, 16, 1024);
    else consumer(self->shared);
    return NULL;
}

static uint64_t prodcons(uint64_t scale) { return run_workers(2, scale, 13, queue_new(), prodcons_body); }

/* The same, but the producer keeps one block in 64, in a window of 40,000, and gives those back itself: its spans
 * never become empty, and what the other thread returns must be found again or the heap grows for ever. */
static void *freeonly_body(void *given) {
    worker_t *self = given;
    queue_t *queue = self->shared;
    enum { KEPT = 40000 };
    block_t batch[BATCH];
    if (self->index) {
        consumer(queue);
        return NULL;
    }
    block_t *kept = harness_map(KEPT * sizeof *kept);
    for (uint64_t i = 0; i < self->scale; i++) {
        fill_batch(self, batch, 16, 2048);
        for (int k = 0; k < BATCH; k += 64) {
            block_t *slot = &kept[rng_below(&self->rng, KEPT)];
            give_slot(slot);
            *slot = batch[k];
            batch[k].at = NULL;
        }
        queue_put(queue, batch);
    }
    queue_close(queue);
    for (int i = 0; i < KEPT; i++) give_slot(&kept[i]);
    return NULL;
}

static uint64_t freeonly(uint64_t scale) { return run_workers(2, scale, 14, queue_new(), freeonly_body); }

/* Threads that live for 400 blocks and leave one in five to whoever comes after them. */
enum { CHURN_BLOCKS = 400, CHURN_LEFT = 20000 };
typedef struct {
    block_t left[2][CHURN_LEFT];
    int at[2];
} churn_t;

static void *churn_body(void *given) {
    worker_t *self = given;
    churn_t *shared = self->shared;
    block_t own[CHURN_BLOCKS];
    for (int i = 0; i < CHURN_BLOCKS; i++) own[i] = take(rng_between(&self->rng, 16, 800));
    for (int i = 0; i < CHURN_BLOCKS; i++) {
        if (i % 5) {
            give(own[i]);
            continue;
        }
        int *at = &shared->at[self->index];
        block_t *slot = &shared->left[self->index][(*at)++ % CHURN_LEFT];
        give_slot(slot);
        *slot = own[i];
    }
    self->ops = CHURN_BLOCKS;
    return NULL;
}

static uint64_t churn(uint64_t scale) {
    churn_t *shared = harness_map(sizeof *shared);
    uint64_t ops = 0;
    for (uint64_t i = 0; i < scale; i++) ops += run_workers(2, 0, 15 + i * 17, shared, churn_body);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < CHURN_LEFT; i++) give_slot(&shared->left[t][i]);
    return ops;
}

/* False sharing: each thread writes its own small block many times. In `scratch` the first blocks come from one
 * thread, lie side by side, and are given back by each thread before it takes its own. */
static void write_often(unsigned char *at, size_t bytes, int times) {
    for (int i = 0; i < times; i++)
        for (size_t k = 0; k < bytes; k++) ((volatile unsigned char *)at)[k]++;
}

static void *scratch_body(void *given) {
    worker_t *self = given;
    block_t *first = self->shared;
    if (first) give_slot(&first[self->index]);
    for (uint64_t i = 0; i < self->scale; i++) {
        unsigned char *at = calloc(1, 8);
        if (!at) die("pattern: calloc returned null");
        write_often(at, 8, 1000);
        if (at[0] != (1000 & 0xff)) die("pattern: a block's content has changed");
        free(at);
    }
    self->ops = self->scale * 1000;
    return NULL;
}

static uint64_t scratch(uint64_t scale) {
    block_t *first = harness_map(16 * sizeof *first);
    for (int i = 0; i < 2; i++) first[i] = take(8);
    return run_workers(2, scale, 16, first, scratch_body);
}

static uint64_t thrash(uint64_t scale) { return run_workers(2, scale, 17, NULL, scratch_body); }

/* Four threads in a ring: each takes a batch, passes it on, and gives back what reaches it. */
static void *ring_body(void *given) {
    worker_t *self = given;
    queue_t **queues = self->shared;
    queue_t *mine = queues[self->index], *next = queues[(self->index + 1) % self->threads];
    block_t batch[BATCH];
    for (uint64_t i = 0; i < self->scale; i++) {
        fill_batch(self, batch, 16, 128);
        queue_put(next, batch);
        if (i >= 4 && queue_get(mine, batch)) give_batch(batch);
    }
    queue_close(next);
    while (queue_get(mine, batch)) give_batch(batch);
    return NULL;
}

static uint64_t ring4(uint64_t scale) {
    queue_t *queues[4];
    for (int i = 0; i < 4; i++) queues[i] = queue_new();
    return run_workers(4, scale, 18, queues, ring_body);
}

/* Stress: each thread builds arrays of blocks of widely mixed sizes, keeps some, exchanges some through a shared
 * table, and everything dies at the end of a round. */
enum { STRESS_SHARED = 1000, STRESS_KEPT = 2500 };
typedef struct {
    pthread_mutex_t lock;
    block_t slots[STRESS_SHARED];
} stress_t;

static size_t stress_size(rng_t *rng) {
    uint64_t draw = rng_below(rng, 1000);
    if (draw < 1) return rng_between(rng, 64 << 10, 400 << 10);
    if (draw < 20) return rng_between(rng, 4 << 10, 32 << 10);
    if (draw < 200) return rng_between(rng, 256, 2048);
    return rng_between(rng, 8, 128);
}

static void exchange(stress_t *shared, rng_t *rng, block_t *block) {
    pthread_mutex_lock(&shared->lock);
    block_t *slot = &shared->slots[rng_below(rng, STRESS_SHARED)];
    block_t other = *slot;
    *slot = *block;
    *block = other;
    pthread_mutex_unlock(&shared->lock);
}

static void *stress_body(void *given) {
    worker_t *self = given;
    block_t *kept = harness_map(STRESS_KEPT * sizeof *kept);
    for (uint64_t i = 0; i < self->scale; i++) {
        block_t *slot = &kept[rng_below(&self->rng, STRESS_KEPT)];
        give_slot(slot);
        *slot = take(stress_size(&self->rng));
        if (i % 8 == 0) exchange(self->shared, &self->rng, slot);
    }
    for (int i = 0; i < STRESS_KEPT; i++) give_slot(&kept[i]);
    self->ops = self->scale;
    return NULL;
}

static uint64_t mstress(uint64_t scale) {
    stress_t *shared = harness_map(sizeof *shared);
    pthread_mutex_init(&shared->lock, NULL);
    uint64_t ops = 0;
    for (uint64_t round = 0; round < 10; round++)
        ops += run_workers(2, scale / 10 + 1, 19 + round * 101, shared, stress_body);
    for (int i = 0; i < STRESS_SHARED; i++) give_slot(&shared->slots[i]);
    return ops;
}

const pattern_t handed_patterns[] = {
    {"larson", larson, 160, "2 threads and their successors, 10 to 500 bytes, most given back by another thread"},
    {"xmalloc", xmalloc, 10000, "2 threads that give back each other's blocks"},
    {"prodcons", prodcons, 12000, "one thread takes, another gives back"},
    {"freeonly", freeonly, 6000, "the same, and the first keeps some of its blocks"},
    {"churn", churn, 2000, "4,000 threads of 400 blocks, one in five left behind"},
    {"scratch", scratch, 50000, "small blocks from one thread given back by two, each writing its own often"},
    {"thrash", thrash, 50000, "small blocks of two threads, each writing its own often"},
    {"ring4", ring4, 4000, "4 threads in a ring, each gives back its neighbour's blocks"},
    {"mstress", mstress, 3000000, "2 threads, 8 bytes to 400 KiB, some exchanged"},
    {NULL, NULL, 0, NULL},
};
