/*
 * sizes.c: every size and every alignment at its edges, each usable byte written and read back.
 *
 * S1  Every size from 0 to 70,000, each alignment from 1 to 4 MiB with sizes around it and around the
 *     pages, and the same by way of realloc, up and down.
 * S2  At least 64 neighbours live at any time, each full of bytes of its own to the end of its usable
 *     size: two blocks that overlap are seen.
 * S3  calloc's blocks are zero, also after the memory has been used.
 */
#include "check.h"

#include <malloc.h>

#define LIVE 64
static const size_t LARGEST = 70000;

static struct {
    unsigned char *block;
    size_t usable;
    unsigned char byte;
} live[LIVE];
static unsigned turn;

static void check_bytes(const unsigned char *block, size_t size, unsigned char byte)
{
    /* The ends, and every so often between: the whole of 70,000 blocks would take minutes. */
    for (size_t i = 0; i < size; i += (i < 64 || i + 130 > size) ? 1 : 61)
        CHECK(block[i] == byte);
    CHECK(size == 0 || block[size - 1] == byte);
}

/* Fills a block, keeps it, and frees the oldest of those kept. */
static void keep(void *block, size_t asked, size_t alignment)
{
    CHECK(block != NULL && (uintptr_t)block % alignment == 0);
    size_t usable = malloc_usable_size(block);
    CHECK(usable >= asked);
    unsigned slot = turn++ % LIVE;
    if (live[slot].block != NULL) {
        check_bytes(live[slot].block, live[slot].usable, live[slot].byte);
        free(live[slot].block);
    }
    live[slot].block = block;
    live[slot].usable = usable;
    live[slot].byte = (unsigned char)(turn * 31 + 1);
    memset(block, live[slot].byte, usable);
}

static void *zeroed(size_t count, size_t each)
{
    unsigned char *block = calloc(count, each);
    CHECK(block != NULL);
    for (size_t i = 0; i < count * each; i++)
        CHECK(block[i] == 0);
    return block;
}

static void every_size(void)
{
    for (size_t size = 0; size <= LARGEST; size++) {
        void *block = malloc(size);
        OPAQUE(block);
        keep(block, size, 16);
        if (size % 7 == 0 || size < 2100)
            keep(zeroed(1, size), size, 16);
    }
    for (size_t size = LARGEST; size < ((size_t)64 << 20); size += size / 3) {
        void *block = malloc(size);
        OPAQUE(block);
        keep(block, size, 16);
    }
    say("every size ok\n");
}

static void every_alignment(void)
{
    for (size_t alignment = 1; alignment <= (size_t)4 << 20; alignment *= 2) {
        size_t around[] = {0, 1, 8, 24, alignment - 1, alignment, alignment + 1, 4095, 4096, 4097, 32767, 32768, 32769, 70000};
        for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
            size_t size = around[i];
            keep(memalign(alignment, size), size, alignment);
            keep(aligned_alloc(alignment, size), size, alignment);
            void *block = NULL;
            if (alignment >= sizeof(void *)) {
                CHECK(posix_memalign(&block, alignment, size) == 0);
                keep(block, size, alignment);
            }
        }
    }
    keep(valloc(5), 5, 4096);
    keep(pvalloc(4097), 8192, 4096);
    say("every alignment ok\n");
}

/* Grows and shrinks an aligned or a plain block; what fits into both sizes stays. */
static void resized(void)
{
    static const size_t steps[] = {1, 16, 17, 1000, 16, 4096, 32768, 32769, 100, 65536, 1 << 20, 5 << 20, (5 << 20) + 4096, 1 << 20, 70000, 3};
    for (size_t alignment = 16; alignment <= 65536; alignment *= 64) {
        unsigned char *block = memalign(alignment, 64);
        CHECK(block != NULL);
        size_t size = 64;
        memset(block, 5, size);
        for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
            block = realloc(block, steps[i]);
            CHECK(block != NULL && malloc_usable_size(block) >= steps[i]);
            check_bytes(block, size < steps[i] ? size : steps[i], (unsigned char)(5 + i));
            size = steps[i];
            memset(block, (int)(6 + i), malloc_usable_size(block));
        }
        free(block);
    }
    for (size_t size = 1; size <= LARGEST; size += size < 1100 ? 1 : 97) {
        unsigned char *block = realloc(NULL, size);
        OPAQUE(block);
        CHECK(block != NULL);
        memset(block, 9, size);
        block = realloc(block, size + 1);
        CHECK(block != NULL);
        check_bytes(block, size, 9);
        block = realloc(block, size / 2 + 1);
        CHECK(block != NULL);
        check_bytes(block, size / 2 + 1 < size ? size / 2 + 1 : size, 9);
        free(block);
    }
    say("resized ok\n");
}

int main(void)
{
    every_size();
    every_alignment();
    resized();
    for (unsigned i = 0; i < LIVE; i++)
        free(live[i].block);
    say("sizes ok\n");
    return 0;
}
