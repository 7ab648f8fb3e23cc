/* trickle: one thread takes a large heap of small and middle-sized blocks, another gives nearly all of it back, slowly.
 *
 *   trickle MIB SECONDS ──► the taker: MIB of blocks ──► "full" ──► the freer: all but one of 50, in random order, spread
 *                          over SECONDS ──► "freed" ──► the end of stdin ──► every block that lives is checked
 *
 * T1  Both threads stay, and neither calls the allocator any more: what goes back goes by the allocator's own doing.
 * T2  The list of blocks is mapped by the program. After "freed" it is shrunk to the blocks that live, and its size said.
 * T3  The page floor, said with it, is the number of distinct pages that hold a live byte.
 */
#define _GNU_SOURCE
#include "pattern.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { KEPT_OF = 50, LEAST = 200, MOST = 12 * 1024, STEPS_PER_S = 100 };

typedef struct {
    unsigned char *at;
    uint32_t bytes;
} piece_t;

static piece_t *pieces;
static size_t count, room;

void die(const char *what) {
    fprintf(stderr, "%s\n", what);
    _exit(3);
}

void *harness_map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die("trickle: no memory for the list");
    return at;
}

static unsigned char fill_of(piece_t piece) { return (unsigned char)((uintptr_t)piece.at >> 4) | 1; }

static void *taker(void *given) {
    size_t budget = *(size_t *)given;
    rng_t rng = {31};
    for (size_t taken = 0; taken < budget && count < room; count++) {
        piece_t piece = {NULL, (uint32_t)rng_between(&rng, LEAST, MOST)};
        piece.at = malloc(piece.bytes);
        if (!piece.at) die("trickle: malloc returned null");
        memset(piece.at, fill_of(piece), piece.bytes);
        pieces[count] = piece;
        taken += piece.bytes;
    }
    if (write(1, "full\n", 5) != 5) die("trickle: cannot write");
    for (;;) pause();
    return NULL;
}

static void check_all(void) {
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < pieces[i].bytes; j++)
            if (pieces[i].at[j] != fill_of(pieces[i])) die("trickle: a live block's content has changed");
}

/* Shuffled, so that the blocks to keep are the first ones, and the others go from the end. */
static void shuffle(void) {
    rng_t rng = {32};
    for (size_t i = count; i > 1; i--) {
        size_t other = rng_below(&rng, i);
        piece_t piece = pieces[i - 1];
        pieces[i - 1] = pieces[other];
        pieces[other] = piece;
    }
}

static void free_over(size_t steps) {
    struct timespec next;
    size_t kept = count / KEPT_OF, all = count - kept;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (size_t step = 1; step <= steps; step++) {
        for (size_t left = kept + all - all * step / steps; count > left;) {
            piece_t piece = pieces[--count];
            if (piece.at[0] != fill_of(piece) || piece.at[piece.bytes - 1] != fill_of(piece)) die("trickle: a block's content has changed");
            free(piece.at);
        }
        next.tv_nsec += 1000000000 / STEPS_PER_S;
        if (next.tv_nsec >= 1000000000) next.tv_nsec -= 1000000000, next.tv_sec++;
        if (steps > 1) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
}

static int by_value(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static size_t floor_kb(void) {
    size_t pages = 0, floor = 0, most = count * (MOST / 4096 + 2);
    uintptr_t *all = harness_map(most * sizeof *all);
    for (size_t i = 0; i < count; i++)
        for (uintptr_t p = (uintptr_t)pieces[i].at >> 12; p <= ((uintptr_t)pieces[i].at + pieces[i].bytes - 1) >> 12; p++)
            all[pages++] = p;
    qsort(all, pages, sizeof *all, by_value);
    for (size_t i = 0; i < pages; i++) floor += i == 0 || all[i] != all[i - 1];
    munmap(all, most * sizeof *all);
    return floor * 4;
}

int main(int argc, char **argv) {
    char word[8];
    pthread_t id;
    size_t budget = argc == 3 ? strtoul(argv[1], NULL, 10) << 20 : 0, seconds = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (!budget) {
        fprintf(stderr, "usage: trickle MIB SECONDS (0: all at once)\n");
        return 2;
    }
    room = budget / LEAST + 1;
    pieces = harness_map(room * sizeof *pieces);
    if (pthread_create(&id, NULL, taker, &budget)) die("trickle: cannot start a thread");
    /* The word that says "go": until then the heap is full, and its peak can be read. */
    if (read(0, word, sizeof word) <= 0) return 0;
    shuffle();
    free_over(seconds ? seconds * STEPS_PER_S : 1);
    size_t used = (count * sizeof *pieces + 4095) & ~(size_t)4095;
    if (munmap((char *)pieces + used, ((room * sizeof *pieces + 4095) & ~(size_t)4095) - used)) die("trickle: munmap of the list's tail");
    /* Not by stdio, which would allocate (T1). */
    char line[96];
    int length = snprintf(line, sizeof line, "freed %zu %zu\n", floor_kb(), used >> 10);
    if (write(1, line, (size_t)length) != length) die("trickle: cannot write");
    if (read(0, word, sizeof word) < 0) return 1;
    check_all();
    return write(1, "right\n", 6) == 6 ? 0 : 1;
}
