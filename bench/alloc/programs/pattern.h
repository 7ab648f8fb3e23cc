/* What every pattern shares: seeded numbers, blocks stamped and checked, threads, one line of result.
 *
 *   pattern NAME [SCALE] ──► work (a count fixed by NAME and SCALE) ──► {"pattern": …, "ops": …, "cpu_ns": …}
 *
 * Q1  The work is the same for every allocator: it depends on the seed and the scale, never on time or addresses.
 * Q2  What the harness itself needs (slots, rings) is mapped by it, never taken from the allocator under test.
 * Q3  Every block is stamped at both ends, with a number of its own, when it is taken, and checked when it is given
 *     back: a block that was handed out twice is seen even at the same size. A wrong stamp ends the program with 3. The price is the same for all: two stores and two loads in lines that a
 *     program would touch anyway.
 * Q4  A wait parks the thread; nobody spins, since spinning would be counted as the allocator's CPU time.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t state;
} rng_t;

static inline uint64_t rng_next(rng_t *r) {
    /* splitmix64, by its published constants */
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t rng_below(rng_t *r, uint64_t limit) { return ((rng_next(r) >> 32) * limit) >> 32; }

static inline uint64_t rng_between(rng_t *r, uint64_t low, uint64_t high) {
    return low + rng_below(r, high - low + 1);
}

typedef struct {
    unsigned char *at;
    uint32_t bytes;
    uint32_t serial;
} block_t;

__attribute__((noreturn)) void die(const char *what);
void *harness_map(size_t bytes);
void stamp(block_t block);
void check(block_t block);

/* Takes, stamps; dies if the allocator refuses. */
block_t take(size_t bytes);
/* Checks, gives back. A block with no address is passed over. */
void give(block_t block);

static inline void give_slot(block_t *slot) {
    if (slot->at) give(*slot);
    slot->at = NULL;
}

typedef struct {
    int index;
    int threads;
    uint64_t scale;
    rng_t rng;
    uint64_t ops;
    void *shared;
} worker_t;

/* Runs the function in so many threads at once, and sums their operations. */
uint64_t run_workers(int threads, uint64_t scale, uint64_t seed, void *shared, void *(*body)(void *));

/* A bounded queue of batches of blocks, with parked waits. */
enum { BATCH = 256, QUEUE = 16 };
typedef struct {
    block_t batches[QUEUE][BATCH];
    uint64_t put, got;
    int closed;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} queue_t;

queue_t *queue_new(void);
void queue_put(queue_t *queue, const block_t *batch);
/* False once the queue is closed and empty. */
int queue_get(queue_t *queue, block_t *batch);
void queue_close(queue_t *queue);

typedef struct {
    const char *name;
    /* Returns the number of operations done. */
    uint64_t (*run)(uint64_t scale);
    uint64_t scale;
    const char *what;
} pattern_t;

extern const pattern_t single_patterns[];
/* Of one thread, longer-lived blocks. */
extern const pattern_t longer_patterns[];
extern const pattern_t thread_patterns[];
extern const pattern_t handed_patterns[];
/* Found by name, not listed: what other figures are corrected by. */
extern const pattern_t hidden_patterns[];

#endif
