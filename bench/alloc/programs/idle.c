/* idle: builds a heap, drops most of it, then does nothing, so that what the allocator still holds can be measured.
 *
 *   idle frag1|prodcons|thrchurn ──► work ──► drop ──► "dropped" ──┐
 *   stdin: "trim" ──► malloc_trim(0) ──► "trimmed"   ◄─────────────┤ the one who measures reads smaps_rollup meanwhile
 *   stdin: "floor" ──► live bytes, page floor, own pages ◄─────────┘
 *
 * H1  The page floor is the number of distinct 4 KiB pages that hold a live byte, from addresses and requested sizes.
 * H2  Blocks are filled from end to end, and every byte of those that live is checked at the end: a page that was
 *     given back too early is seen.
 * H3  Between "dropped" and the next word nothing is called that allocates, not even by stdio: idle is idle.
 * H4  What the program itself needs (lists of blocks, rings) is mapped by it, shrunk to the live blocks after the
 *     drop, and said as `own_kb`, so that it can be taken off.
 */
#define _GNU_SOURCE
#include "pattern.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_BLOCKS = 8 << 20 };
static block_t *blocks;
static size_t count;

void die(const char *what) {
    ssize_t ignored = write(2, what, strlen(what));
    ignored += write(2, "\n", 1);
    (void)ignored;
    _exit(3);
}

void *harness_map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die("idle: no memory for the harness");
    return at;
}

static unsigned char fill_of(block_t block) { return (unsigned char)((uintptr_t)block.at >> 4) | 1; }

static block_t filled(size_t bytes) {
    block_t block = {malloc(bytes), (uint32_t)bytes, 0};
    if (!block.at) die("idle: malloc returned null");
    memset(block.at, fill_of(block), bytes);
    return block;
}

static void check_all(block_t block) {
    unsigned char wanted = fill_of(block);
    for (size_t i = 0; i < block.bytes; i++)
        if (block.at[i] != wanted) die("idle: a live block's content has changed");
}

static void dropped(block_t block) {
    if (block.at[0] != fill_of(block) || block.at[block.bytes - 1] != fill_of(block))
        die("idle: a block's content has changed");
    free(block.at);
}

static void drop_at(size_t index) {
    dropped(blocks[index]);
    blocks[index] = blocks[--count];
}

/* Twelve phases, each of its own sizes, 96 MiB live throughout; then nine blocks in ten are dropped at random. */
static void frag1(void) {
    enum { PHASES = 12 };
    const size_t budget = 96u << 20;
    rng_t rng = {21};
    size_t live = 0;
    double low = 16;
    for (int phase = 0; phase < PHASES; phase++, low *= 1.6) {
        for (size_t made = 0; made < budget * 6 / 10;) {
            size_t bytes = rng_between(&rng, (uint64_t)low, (uint64_t)(low * 1.6));
            while (live + bytes > budget) {
                size_t victim = rng_below(&rng, count);
                live -= blocks[victim].bytes;
                drop_at(victim);
            }
            if (count == MAX_BLOCKS) die("idle: too many blocks");
            blocks[count++] = filled(bytes);
            live += bytes;
            made += bytes;
        }
    }
    for (size_t keep = count / 10; count > keep;) drop_at(rng_below(&rng, count));
}

/* A producer runs 60,000 blocks ahead of a consumer, which keeps 3 in 100. At the end comes a spike: 200,000 blocks
 * pile up and are worked off, none of them kept. Both threads stay. */
enum { STEADY = 60000, RING = 200000, PRODUCED = 1500000, CHUNK = 1000 };
static block_t *ring;
static size_t ring_put, ring_got;
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ring_changed = PTHREAD_COND_INITIALIZER;
static int finished;

static void *produce(void *unused) {
    rng_t rng = {22};
    (void)unused;
    for (size_t made = 0; made < PRODUCED; made += CHUNK) {
        pthread_mutex_lock(&ring_lock);
        while (ring_put - ring_got > (made < PRODUCED - RING ? STEADY : RING) - CHUNK) pthread_cond_wait(&ring_changed, &ring_lock);
        pthread_mutex_unlock(&ring_lock);
        for (size_t i = 0; i < CHUNK; i++) ring[(made + i) % RING] = filled(rng_between(&rng, 16, 1024));
        pthread_mutex_lock(&ring_lock);
        ring_put = made + CHUNK;
        pthread_cond_broadcast(&ring_changed);
        pthread_mutex_unlock(&ring_lock);
    }
    for (;;) pause();
    return NULL;
}

/* Waits for the full depth, so that it does not depend on who is quicker. */
static void *consume(void *unused) {
    rng_t rng = {23};
    (void)unused;
    for (size_t got = 0; got < PRODUCED; got += CHUNK) {
        size_t left = PRODUCED - got, ahead = left > RING ? STEADY : left;
        pthread_mutex_lock(&ring_lock);
        while (ring_put - got < ahead) pthread_cond_wait(&ring_changed, &ring_lock);
        pthread_mutex_unlock(&ring_lock);
        for (size_t i = 0; i < CHUNK; i++) {
            block_t block = ring[(got + i) % RING];
            if (left > RING && rng_below(&rng, 100) < 3) blocks[count++] = block;
            else dropped(block);
        }
        pthread_mutex_lock(&ring_lock);
        ring_got = got + CHUNK;
        finished = ring_got == PRODUCED;
        pthread_cond_broadcast(&ring_changed);
        pthread_mutex_unlock(&ring_lock);
    }
    for (;;) pause();
    return NULL;
}

static void prodcons(void) {
    pthread_t ids[2];
    ring = harness_map(RING * sizeof *ring);
    if (pthread_create(&ids[0], NULL, produce, NULL) || pthread_create(&ids[1], NULL, consume, NULL))
        die("idle: cannot start a thread");
    pthread_mutex_lock(&ring_lock);
    while (!finished) pthread_cond_wait(&ring_changed, &ring_lock);
    pthread_mutex_unlock(&ring_lock);
    munmap(ring, RING * sizeof *ring);
}

/* 32 rounds of four threads; each takes 4,000 blocks, drops three in four, and ends. Then of what the
 * first 20 rounds left, 19 in 20 are dropped, by a thread that took none of it. */
enum { CHURN_THREADS = 4, CHURN_BLOCKS = 4000, CHURN_KEPT = CHURN_BLOCKS / 4 };
typedef struct {
    uint64_t seed;
    block_t own[CHURN_BLOCKS];
} churn_t;

static void *churn_body(void *given) {
    churn_t *self = given;
    block_t *own = self->own;
    rng_t rng = {self->seed};
    for (int i = 0; i < CHURN_BLOCKS; i++) own[i] = filled(rng_between(&rng, 16, 1024));
    for (int left = CHURN_BLOCKS; left > CHURN_KEPT; left--) {
        size_t pick = rng_below(&rng, left);
        dropped(own[pick]);
        own[pick] = own[left - 1];
    }
    return NULL;
}

static void thrchurn(void) {
    enum { ROUNDS = 32 };
    churn_t *parts = harness_map(CHURN_THREADS * sizeof *parts);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        pthread_t ids[CHURN_THREADS];
        for (int t = 0; t < CHURN_THREADS; t++) {
            parts[t].seed = 24 + round * 64 + t;
            if (pthread_create(&ids[t], NULL, churn_body, &parts[t])) die("idle: cannot start a thread");
        }
        for (int t = 0; t < CHURN_THREADS; t++) pthread_join(ids[t], NULL);
        for (int t = 0; t < CHURN_THREADS; t++)
            for (int i = 0; i < CHURN_KEPT; i++) blocks[count++] = parts[t].own[i];
    }
    munmap(parts, CHURN_THREADS * sizeof *parts);
    for (size_t i = (size_t)20 * CHURN_THREADS * CHURN_KEPT; i-- > 0;)
        if (i % 20) drop_at(i);
}

static void settle(void) {
    size_t used = (count * sizeof *blocks + 4095) & ~(size_t)4095;
    if (munmap((char *)blocks + used, MAX_BLOCKS * sizeof *blocks - used)) die("idle: munmap of the list's tail");
}

static int by_value(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

/* Sorted in place in memory of our own (H1). */
static void say_floor(void) {
    size_t pages = 0, live = 0, floor = 0;
    for (size_t i = 0; i < count; i++) pages += (((uintptr_t)blocks[i].at + blocks[i].bytes - 1) >> 12) - ((uintptr_t)blocks[i].at >> 12) + 1;
    uintptr_t *all = harness_map((pages + 1) * sizeof *all);
    pages = 0;
    for (size_t i = 0; i < count; i++) {
        check_all(blocks[i]);
        live += blocks[i].bytes;
        for (uintptr_t p = (uintptr_t)blocks[i].at >> 12; p <= ((uintptr_t)blocks[i].at + blocks[i].bytes - 1) >> 12; p++)
            all[pages++] = p;
    }
    qsort(all, pages, sizeof *all, by_value);
    for (size_t i = 0; i < pages; i++) floor += i == 0 || all[i] != all[i - 1];
    Dl_info info = {0};
    dladdr((void *)malloc, &info);
    dprintf(1, "{\"live_kb\": %zu, \"live_blocks\": %zu, \"floor_kb\": %zu, \"own_kb\": %zu, \"malloc\": \"%s\"}\n", live >> 10,
            count, floor * 4, (count * sizeof *blocks + 4095) / 4096 * 4, info.dli_fname ? info.dli_fname : "?");
}

static int answer(void) {
    char word[16];
    for (;;) {
        ssize_t got = read(0, word, sizeof word - 1);
        if (got <= 0) return 0;
        word[got] = 0;
        if (!strcmp(word, "trim\n")) {
            malloc_trim(0);
            dprintf(1, "trimmed\n");
        } else if (!strcmp(word, "floor\n")) {
            say_floor();
        } else {
            die("idle: expected trim or floor");
        }
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } works[] = {{"frag1", frag1}, {"prodcons", prodcons}, {"thrchurn", thrchurn}};
    blocks = harness_map(MAX_BLOCKS * sizeof *blocks);
    for (size_t i = 0; argc == 2 && i < sizeof works / sizeof *works; i++) {
        if (strcmp(argv[1], works[i].name)) continue;
        works[i].run();
        settle();
        if (write(1, "dropped\n", 8) != 8) return 1;
        return answer();
    }
    fprintf(stderr, "usage: idle frag1|prodcons|thrchurn\n");
    return 2;
}
