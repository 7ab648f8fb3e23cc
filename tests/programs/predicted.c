/*
 * predicted.c: every block predicted, for every pass of the analysis. predicted.json has the same
 * figures for a test to compare with, to the unit.
 *
 * One thread, glibc 2.36, no allocation before main, none by stdio. A chunk is the request plus 8,
 * rounded up to 16, at least 32; usable bytes are the chunk minus 8:
 *     usable(n) = max(24, ((n + 23) & ~15) - 8)        1025 -> 1032, 1040 -> 1048, 24 -> 24, 25 -> 40
 * From 128 KiB on (until the first such block is freed, which raises the limit to its size) a
 * block is a mapping: (n + 8 rounded up to 16, plus 8) rounded up to 4096, minus 16.
 *
 * In this order, each function by itself the innermost frame of its blocks:
 *
 *   function        blocks asked for                                  live at the end
 *   grow_by_one     realloc 1, 2, 3 ... 2000, then free                 none
 *   grow_doubling   realloc 1, 2, 4 ... 65536, then free                none
 *   grow_fixed      realloc 4096, 8192 ... 65536, then free             none
 *   grow_by_hand    malloc 16, 32 ... 65536, each time copy and free    none
 *   small_sizes     100 x 1, 50 x 24, 40 x 25, 30 x 40, 20 x 100,       all 250
 *                   10 x 1000
 *   terminator      64 x 1025  (2^10 + 1)                               all 64
 *   block_header    64 x 1040  (2^10 + 16)                              all 64
 *   exact           64 x 1024  (no clownshoe)                           all 64
 *   temporary       5000 x (malloc 48, free)                            none
 *   placebo         a "cache" that keeps its buffers of 4096 and never  none
 *                   finds one: asked 64 times, 64 mallocs; 64 frees. It
 *                   keeps them all, as a list of data does: no finding.
 *   large           A = malloc 1 MiB, B = malloc 1 MiB (two mappings),  B
 *                   free A (limit is now 1052672), C = malloc 1 MiB
 *                   (in the heap), free C
 *   request         100 x 64 between marks "request begin" and          6
 *                   "request end"; 90 freed before the end mark (10
 *                   zombies), 4 of the 10 later
 *   keep            7 x calloc(3, 100)                                  all 7
 *
 *   function        allocations   requested bytes   usable bytes   (sums over the run)
 *   grow_by_one            2000           2001000        2016128
 *   grow_doubling            17            131071         131256
 *   grow_fixed               16            557056         557184
 *   grow_by_hand             13            131056         131160
 *   small_sizes             250             15500          18480
 *   terminator               64             65600          66048
 *   block_header             64             66560          67072
 *   exact                    64             65536          66048
 *   temporary              5000            240000         280000
 *   placebo                  64            262144         262656
 *   large                     3           3145728        3153896
 *   request                 100              6400           7200
 *   keep                      7              2100           2184
 *
 * How the sums come about: grow_by_one 2000 * 2001 / 2; usable: 24 sizes (1..24) at 24, then 16
 * sizes each at 40, 56 ... 1992 (25..1992), then 8 (1993..2000) at 2008:
 * 576 + 16 * (40 + 56 + ... + 1992 = 123 * 1016) + 16064.
 * small_sizes usable: 150 * 24 + 70 * 40 + 20 * 104 + 10 * 1000.
 *
 *   all                    7662           6689751        6759312
 *   largest live heap       444 blocks    2310348        2322960   (250 + 192 + A + B)
 *   live at the end         456 blocks    1264256        1272920   (250 + 192 + B + 6 + 7)
 *
 * A realloc counts as one release and one acquisition; realloc of NULL as an acquisition.
 */
#include <malloc.h>

#include "check.h"
#include "skinflint.h"

static struct {
    unsigned long blocks, requested, usable, live, live_requested, live_usable;
    unsigned long peak_blocks, peak_requested, peak_usable, wrong;
} sum;

/* What usable(n) in the comment above says. */
static size_t usable(size_t size)
{
    size_t rounded = ((size + 23) & ~(size_t)15) - 8;
    return rounded < 24 ? 24 : rounded;
}

__attribute__((always_inline)) static inline void *took(void *block, size_t size, size_t expect)
{
    OPAQUE(block);
    CHECK(block != NULL);
    sum.wrong += malloc_usable_size(block) != expect;
    sum.blocks++;
    sum.requested += size;
    sum.usable += expect;
    sum.live++;
    sum.live_requested += size;
    sum.live_usable += expect;
    if (sum.live_usable > sum.peak_usable) {
        sum.peak_usable = sum.live_usable;
        sum.peak_blocks = sum.live;
        sum.peak_requested = sum.live_requested;
    }
    return block;
}

__attribute__((always_inline)) static inline void gave(size_t size, size_t expect)
{
    sum.live--;
    sum.live_requested -= size;
    sum.live_usable -= expect;
}

__attribute__((always_inline)) static inline void *take(size_t size)
{
    return took(malloc(size), size, usable(size));
}

__attribute__((always_inline)) static inline void give(void *block, size_t size)
{
    gave(size, usable(size));
    free(block);
}

/* A realloc from `before` bytes; 0 for the first. */
__attribute__((always_inline)) static inline void *grow(void *block, size_t before, size_t size)
{
    if (before)
        gave(before, usable(before));
    return took(realloc(block, size), size, usable(size));
}

NOINLINE static void grow_by_one(void)
{
    char *buffer = NULL;
    for (size_t size = 1; size <= 2000; size++) {
        buffer = grow(buffer, size - 1, size);
        buffer[size - 1] = 'x';
    }
    give(buffer, 2000);
    NO_TAIL_CALL();
}

NOINLINE static void grow_doubling(void)
{
    char *buffer = grow(NULL, 0, 1);
    for (size_t size = 2; size <= 65536; size *= 2)
        buffer = grow(buffer, size / 2, size);
    give(buffer, 65536);
    NO_TAIL_CALL();
}

NOINLINE static void grow_fixed(void)
{
    char *buffer = NULL;
    for (size_t size = 4096; size <= 65536; size += 4096)
        buffer = grow(buffer, size - 4096, size);
    give(buffer, 65536);
    NO_TAIL_CALL();
}

NOINLINE static void grow_by_hand(void)
{
    char *buffer = take(16);
    memset(buffer, 'x', 16);
    for (size_t size = 32; size <= 65536; size *= 2) {
        char *larger = take(size);
        memcpy(larger, buffer, size / 2);
        give(buffer, size / 2);
        buffer = larger;
    }
    give(buffer, 65536);
    NO_TAIL_CALL();
}

NOINLINE static void small_sizes(void)
{
    static const struct {
        unsigned count, size;
    } kinds[] = {{100, 1}, {50, 24}, {40, 25}, {30, 40}, {20, 100}, {10, 1000}};
    for (unsigned kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
        for (unsigned i = 0; i < kinds[kind].count; i++)
            take(kinds[kind].size);
}

NOINLINE static void terminator(void)
{
    for (int i = 0; i < 64; i++)
        take(1024 + 1);
}

NOINLINE static void block_header(void)
{
    for (int i = 0; i < 64; i++)
        take(1024 + 16);
}

NOINLINE static void exact(void)
{
    for (int i = 0; i < 64; i++)
        take(1024);
}

NOINLINE static void temporary(void)
{
    for (int i = 0; i < 5000; i++)
        give(take(48), 48);
}

/* Looks for a larger buffer than it keeps, so it never finds one. */
NOINLINE static void placebo(void)
{
    struct {
        void *buffer;
        size_t size;
    } cache[64];
    unsigned kept = 0;
    for (int i = 0; i < 64; i++) {
        void *buffer = NULL;
        for (unsigned k = 0; k < kept && !buffer; k++)
            if (cache[k].size > 4096)
                buffer = cache[k].buffer;
        if (!buffer)
            buffer = take(4096);
        cache[kept].buffer = buffer;
        cache[kept++].size = 4096;
    }
    while (kept)
        give(cache[--kept].buffer, 4096);
}

NOINLINE static void large(void)
{
    const size_t size = 1 << 20, mapped = 1052672 - 16;
    void *a = took(malloc(size), size, mapped);
    took(malloc(size), size, mapped); /* B: stays */
    gave(size, mapped);
    free(a);
    void *c = took(malloc(size), size, usable(size));
    give(c, size);
    NO_TAIL_CALL();
}

NOINLINE static void request(void)
{
    void *blocks[100];
    skinflint_mark("request begin");
    for (int i = 0; i < 100; i++)
        blocks[i] = take(64);
    for (int i = 0; i < 90; i++)
        give(blocks[i], 64);
    skinflint_mark("request end");
    for (int i = 90; i < 94; i++)
        give(blocks[i], 64);
}

NOINLINE static void keep(void)
{
    for (int i = 0; i < 7; i++)
        took(calloc(3, 100), 300, usable(300));
}

int main(void)
{
    grow_by_one();
    grow_doubling();
    grow_fixed();
    grow_by_hand();
    small_sizes();
    terminator();
    block_header();
    exact();
    temporary();
    placebo();
    large();
    request();
    keep();
    say("allocations %lu requested %lu usable %lu\n", sum.blocks, sum.requested, sum.usable);
    say("peak: blocks %lu requested %lu usable %lu\n", sum.peak_blocks, sum.peak_requested,
        sum.peak_usable);
    say("end: blocks %lu requested %lu usable %lu\n", sum.live, sum.live_requested,
        sum.live_usable);
    say("usable sizes other than predicted: %lu\n", sum.wrong);
    return sum.wrong != 0;
}
