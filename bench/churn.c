/* churn: as many heap events as it is told to make, from a few hundred stacks, with a steady live heap.
 *
 *   churn EVENTS [LIVE [SEED]]        one event = one malloc or one free
 *
 *   slot = random ──► free what it holds ──► malloc(random size) from one of 256 call chains
 *
 * C1  The same arguments make the same calls, on every machine.
 * C2  At most LIVE blocks live at a time (default 200,000); sizes are 8 to 1,031 bytes, small ones
 *     being far more frequent, so that the peak stays near 16 MB.
 * C3  Every block is written to (first and last byte) and checked when it is freed; exit 1 if one changed.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

struct block {
    unsigned char *bytes;
    uint32_t size;
};

static __attribute__((noinline)) unsigned char *leaf(uint32_t size) {
    unsigned char *bytes = malloc(size);
    if (!bytes) abort();
    return bytes;
}

/* Eight levels, two ways down at each: 256 stacks. The empty asm keeps the calls from being merged
 * or turned into jumps. */
#define LEVEL(name, below)                                                        \
    static __attribute__((noinline)) unsigned char *name(uint32_t size, unsigned path) { \
        unsigned char *bytes;                                                     \
        if (path & 1) {                                                           \
            bytes = below(size, path >> 1);                                       \
            __asm__ volatile("" : "+r"(bytes));                                   \
        } else {                                                                  \
            bytes = below(size, path >> 1);                                       \
            __asm__ volatile("nop" : "+r"(bytes));                                \
        }                                                                         \
        return bytes;                                                             \
    }
static __attribute__((noinline)) unsigned char *level0(uint32_t size, unsigned path) {
    unsigned char *bytes = leaf(size + (path & 0));
    __asm__ volatile("" : "+r"(bytes));
    return bytes;
}
LEVEL(level1, level0)
LEVEL(level2, level1)
LEVEL(level3, level2)
LEVEL(level4, level3)
LEVEL(level5, level4)
LEVEL(level6, level5)
LEVEL(level7, level6)
LEVEL(level8, level7)

static int drop(struct block *block) {
    unsigned char mark = (unsigned char)block->size;
    int good = block->bytes[0] == mark && block->bytes[block->size - 1] == mark;
    free(block->bytes);
    block->bytes = NULL;
    return good;
}

static void fill(struct block *block) {
    uint64_t random = next();
    uint32_t shift = (uint32_t)(random >> 8) % 8;
    block->size = 8 + (uint32_t)((random >> 16) & 1023) / (1u << shift);
    block->bytes = level8(block->size, (unsigned)(random >> 32) & 255);
    block->bytes[0] = block->bytes[block->size - 1] = (unsigned char)block->size;
}

int main(int argc, char **argv) {
    uint64_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    uint64_t live = argc > 2 ? strtoull(argv[2], NULL, 10) : 200000;
    state = argc > 3 ? strtoull(argv[3], NULL, 10) : 88172645463325252ull;
    if (!events || !live || !state) {
        fprintf(stderr, "usage: churn EVENTS [LIVE [SEED]], each above 0\n");
        return 2;
    }
    struct block *blocks = calloc(live, sizeof *blocks);
    if (!blocks) return 1;
    uint64_t done = 0, bad = 0;
    while (done < events) {
        struct block *block = &blocks[next() % live];
        if (block->bytes) {
            bad += !drop(block);
            done++;
        }
        if (done < events) {
            fill(block);
            done++;
        }
    }
    printf("%llu events, %llu damaged\n", (unsigned long long)done, (unsigned long long)bad);
    return bad != 0;
}
