/*
 * cache.c: a program with reporters: good, slow, wrong; says "ready", and ends when stdin does.
 *
 *     cache FOLDER        the socket goes to FOLDER
 *
 * Predicted by hand: explicit/caches/images is 1000 blocks of malloc(1000), each 1,000 usable bytes or more by
 * malloc_usable_size, summed by the program itself and printed on its first line. explicit/arena is a mapping of
 * 32 MiB, all of it touched.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "skinflint_report.h"

/* Found at run time, in what is preloaded. A program of one's own links with -lskinflint_report. */
#pragma weak skinflint_report_error
#pragma weak skinflint_reporter_add
#pragma weak skinflint_reporter_remove
#pragma weak skinflint_action_add
#pragma weak skinflint_report_line
#pragma weak skinflint_report_block
#pragma weak skinflint_memory_open
#pragma weak skinflint_memory_close

#define BLOCKS 1000
#define ARENA (32u << 20)

static void *block[BLOCKS];

static size_t held(void)
{
    size_t bytes = 0;
    for (int i = 0; i < BLOCKS; i++)
        bytes += block[i] ? malloc_usable_size(block[i]) : 0;
    return bytes;
}

static void images(void *context, skinflint_report *out)
{
    (void)context;
    size_t bytes = 0;
    for (int i = 0; i < BLOCKS; i++)
        bytes += skinflint_report_block(out, block[i]);
    skinflint_report_heap(out, "explicit/caches/images", bytes, "Decoded images.");
    skinflint_report_count(out, "images", BLOCKS, "Images.");
    skinflint_report_nonheap(out, "explicit/arena", ARENA, "A mapping.");
}

static void wrong(void *context, skinflint_report *out)
{
    (void)context;
    skinflint_report_heap(out, "explicit/wrong/sound", 5, "Goes with the other.");
    skinflint_report_line(out, NULL, "explicit/wrong", SKINFLINT_HEAP, SKINFLINT_BYTES, -1, "Below zero.");
}

static void drop(void *context, char *said, size_t room)
{
    (void)context;
    size_t bytes = held();
    for (int i = 0; i < BLOCKS; i++) {
        free(block[i]);
        block[i] = NULL;
    }
    snprintf(said, room, "dropped %zu bytes", bytes);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: cache FOLDER\n");
        return 2;
    }
    void *arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
        return 6;
    memset(arena, 1, ARENA);
    for (int i = 0; i < BLOCKS; i++) {
        block[i] = malloc(1000);
        memset(block[i], 1, 1000);
    }
    unsigned long number = skinflint_reporter_add("gone", images, NULL);
    if (skinflint_reporter_remove(number) != 1 || skinflint_reporter_remove(number) != -1)
        return 3;
    skinflint_reporter_add("images", images, NULL);
    skinflint_reporter_add("wrong", wrong, NULL);
    skinflint_action_add("minimize", "images", drop, NULL);
    if (skinflint_action_add("explode", "x", drop, NULL) != 0)
        return 4;
    if (skinflint_memory_open(argv[1]) != 1) {
        fprintf(stderr, "%s\n", skinflint_report_error());
        return 5;
    }
    printf("ready %zu\n", held());
    fflush(stdout);
    while (getchar() != EOF)
        ;
    skinflint_memory_close();
    puts("ok");
    return 0;
}
