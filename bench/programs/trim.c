/*
 * Fills a heap, releases all but one block in N, marks, trims, and says how much went back and what
 * glibc itself counts. Usage: trim N (seeded; nothing is allocated between the mark and the trim).
 */
#include "../../include/skinflint.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 200000
static char *blocks[BLOCKS];

static unsigned state = 7;
static unsigned next(void)
{
    state = state * 1103515245u + 12345u;
    return state >> 8;
}

/* Resident memory in KiB, without allocating. */
static long resident(void)
{
    static char buffer[4096];
    char line[300];
    long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    if (!file)
        return -1;
    setvbuf(file, buffer, _IOFBF, sizeof buffer);
    while (fgets(line, sizeof line, file))
        sscanf(line, "Rss: %ld", &kib);
    fclose(file);
    return kib;
}

int main(int count, char **words)
{
    unsigned keep = count > 1 ? (unsigned)atoi(words[1]) : 10;
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = 16 + next() % 600;
        blocks[i] = malloc(size);
        memset(blocks[i], 1, size);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (next() % keep)
            free(blocks[i]);
    struct mallinfo2 info = mallinfo2();
    long before = resident();
    skinflint_mark("trim");
    malloc_trim(0);
    long after = resident();
    printf("%ld %zu %zu\n", (before - after) * 1024, info.uordblks, info.fordblks);
    return 0;
}
