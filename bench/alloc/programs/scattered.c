/*
 * scattered.c: blocks of which some stay, scattered over pages; then it rests while the caller reads its memory.
 *
 *   scattered SIZE MEBIBYTES KEPT_PER_CENT SEED
 *
 * Takes MEBIBYTES of blocks of SIZE bytes (0: 16 to 1,024 by the seed) with seeded random contents, frees all but
 * KEPT_PER_CENT of them in random order, and prints `live BYTES floor BYTES list BYTES`: what is live, the pages that have a
 * live byte, and the program's own list, which is no part of what is measured. Then a letter at a time from stdin:
 *
 *   c   checks the contents of all blocks: `same`, or ends with status 1
 *   r   reads all blocks, and prints the nanoseconds
 *   f   forks, and the child writes all blocks anew, twice: prints what the first time took more, and the pages
 *   w   writes all blocks anew, and prints the nanoseconds
 *   q   ends; so does the end of stdin
 *
 * Nanoseconds are of the processor, of the process and of the kernel on its behalf.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t state;

static uint64_t number(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

struct block {
    unsigned char *at;
    uint32_t size;
    uint32_t seed;
};

static void fill(const struct block *block)
{
    uint64_t own = state;
    state = 0x9e3779b97f4a7c15u ^ block->seed;
    for (uint32_t i = 0; i < block->size; i++)
        block->at[i] = (unsigned char)(number() >> 24);
    state = own;
}

static int is_same(const struct block *block)
{
    uint64_t own = state;
    int same = 1;
    state = 0x9e3779b97f4a7c15u ^ block->seed;
    for (uint32_t i = 0; i < block->size; i++)
        same &= block->at[i] == (unsigned char)(number() >> 24);
    state = own;
    return same;
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long long write_all(const struct block *all, size_t stay, int byte)
{
    long long begin = now();
    for (size_t i = 0; i < stay; i++)
        memset(all[i].at, byte, all[i].size);
    return now() - begin;
}

/* What the kernel takes to copy pages that parent and child share: the control for pages that were merged. */
static void in_a_child(const struct block *all, size_t stay, size_t pages)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        long long first = write_all(all, stay, 1);
        printf("copied %lld %zu\n", first - write_all(all, stay, 2), pages);
        fflush(stdout);
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}

static int by_page(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

int main(int count, char **arguments)
{
    if (count != 5)
        return 2;
    uint32_t size = (uint32_t)atoi(arguments[1]);
    size_t bytes = (size_t)atol(arguments[2]) << 20;
    double kept = atof(arguments[3]) / 100;
    state = 88172645463325252u ^ strtoull(arguments[4], NULL, 10);
    size_t room = bytes / (size ? size : 520) + 1, blocks = 0, stay = 0, live = 0;
    struct block *all = malloc(room * sizeof *all);
    for (size_t taken = 0; taken < bytes && blocks < room; blocks++) {
        struct block *block = &all[blocks];
        block->size = size ? size : 16 + (uint32_t)(number() % 1009);
        block->seed = (uint32_t)number() | 1;
        block->at = malloc(block->size);
        taken += block->size;
        fill(block);
    }
    for (size_t i = blocks; i > 1; i--) {
        size_t j = number() % i;
        struct block other = all[i - 1];
        all[i - 1] = all[j];
        all[j] = other;
    }
    for (size_t i = 0; i < blocks; i++) {
        if ((double)(number() % 1000000) < kept * 1000000) {
            live += all[i].size;
            all[stay++] = all[i];
        } else {
            free(all[i].at);
        }
    }
    uintptr_t *pages = malloc((2 * stay + 1) * sizeof *pages);
    size_t touched = 0, floor = 0;
    for (size_t i = 0; i < stay; i++) {
        pages[touched++] = (uintptr_t)all[i].at / 4096;
        pages[touched++] = ((uintptr_t)all[i].at + all[i].size - 1) / 4096;
    }
    qsort(pages, touched, sizeof *pages, by_page);
    for (size_t i = 0; i < touched; i++)
        floor += i == 0 || pages[i] != pages[i - 1];
    free(pages);
    printf("live %zu floor %zu list %zu\n", live, floor * 4096, room * sizeof *all);
    fflush(stdout);
    for (int letter; (letter = getchar()) != EOF && letter != 'q';) {
        long long begin = now();
        unsigned char any = 0;
        if (letter == 'c') {
            for (size_t i = 0; i < stay; i++)
                if (!is_same(&all[i])) {
                    printf("changed: block %zu at %p\n", i, (void *)all[i].at);
                    return 1;
                }
            printf("same\n");
        } else if (letter == 'r') {
            for (size_t i = 0; i < stay; i++)
                any ^= all[i].at[0] ^ all[i].at[all[i].size - 1];
            printf("read %lld %d\n", now() - begin, any);
        } else if (letter == 'w') {
            printf("written %lld\n", write_all(all, stay, 1));
        } else if (letter == 'f') {
            in_a_child(all, stay, floor);
        } else {
            continue;
        }
        fflush(stdout);
    }
    return 0;
}
