/* Patterns of one thread that keep blocks for a while: buffers, queues, strings in turns, large blocks. Rules in pattern.h. */
#include "pattern.h"

#include <stdlib.h>
#include <string.h>

/* Buffers as a server takes them: 4 to 64 KB, the head written, given back out of order. */
static uint64_t netbuf(uint64_t scale) {
    enum { SLOTS = 600, HEAD = 512 };
    block_t *set = harness_map(SLOTS * sizeof *set);
    rng_t rng = {11};
    for (uint64_t i = 0; i < scale; i++) {
        block_t *slot = &set[rng_below(&rng, SLOTS)];
        give_slot(slot);
        *slot = take(rng_between(&rng, 4 << 10, 64 << 10));
        memset(slot->at + 64, (int)i, HEAD);
    }
    for (int i = 0; i < SLOTS; i++) give_slot(&set[i]);
    return scale;
}

/* First in, first out: 100,000 blocks of 16 to 600 bytes wait in a queue. */
static uint64_t fifo(uint64_t scale) {
    enum { SLOTS = 100000 };
    block_t *queue = harness_map(SLOTS * sizeof *queue);
    rng_t rng = {12};
    for (uint64_t i = 0; i < scale; i++) {
        block_t *slot = &queue[i % SLOTS];
        give_slot(slot);
        *slot = take(rng_between(&rng, 16, 600));
    }
    for (int i = 0; i < SLOTS; i++) give_slot(&queue[i]);
    return scale;
}

/* Strings that grow by 16 bytes in turns, to a length of their own up to 8 KB, and begin anew. One step is one realloc. */
static uint64_t append16(uint64_t scale) {
    enum { STRINGS = 64 };
    struct {
        unsigned char *at;
        size_t bytes, most;
    } strings[STRINGS] = {{0}};
    rng_t rng = {13};
    for (uint64_t i = 0; i < scale; i++) {
        int n = (int)(i % STRINGS);
        if (strings[n].bytes >= strings[n].most) {
            free(strings[n].at);
            strings[n].at = NULL;
            strings[n].bytes = 0;
            strings[n].most = rng_between(&rng, 256, 8192);
        }
        strings[n].at = realloc(strings[n].at, strings[n].bytes + 16);
        if (!strings[n].at) die("pattern: realloc returned null");
        if (strings[n].bytes && strings[n].at[strings[n].bytes - 1] != (unsigned char)n) die("pattern: realloc lost the content");
        memset(strings[n].at + strings[n].bytes, n, 16);
        strings[n].bytes += 16;
    }
    for (int i = 0; i < STRINGS; i++) free(strings[i].at);
    return scale;
}

/* Twenty blocks of 100 KB to 4 MB, their ends written, replaced at random. */
static uint64_t large4m(uint64_t scale) {
    enum { SLOTS = 20 };
    block_t set[SLOTS] = {{0}};
    rng_t rng = {14};
    for (uint64_t i = 0; i < scale; i++) {
        block_t *slot = &set[rng_below(&rng, SLOTS)];
        give_slot(slot);
        *slot = take(rng_between(&rng, 100 << 10, 4 << 20));
    }
    for (int i = 0; i < SLOTS; i++) give_slot(&set[i]);
    return scale;
}

const pattern_t longer_patterns[] = {
    {"netbuf", netbuf, 1000000, "600 buffers of 4 to 64 KB, given back out of order"},
    {"fifo", fifo, 3000000, "a queue of 100,000 blocks of 16 to 600 bytes"},
    {"append16", append16, 10000000, "64 strings that grow by 16 bytes in turns"},
    {"large4m", large4m, 300000, "20 blocks of 100 KB to 4 MB, replaced at random"},
    {NULL, NULL, 0, NULL},
};
