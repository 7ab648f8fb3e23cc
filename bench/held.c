/* Holds so many blocks of a size, and says what they cost: what a sampler adds to each block shows in the difference.
 *
 *   held COUNT BYTES  ──►  {"usable": mean usable size, "rss": resident bytes}
 *
 * Each block is written. The list of them is mapped, and not the allocator's.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long count = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    long bytes = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (count <= 0 || bytes <= 0) {
        fprintf(stderr, "usage: held COUNT BYTES\n");
        return 2;
    }
    char **list = mmap(NULL, count * sizeof *list, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED) {
        return 3;
    }
    unsigned long usable = 0;
    for (long n = 0; n < count; n++) {
        list[n] = malloc(bytes);
        if (!list[n]) {
            return 3;
        }
        memset(list[n], 1, bytes);
        usable += malloc_usable_size(list[n]);
    }
    FILE *file = fopen("/proc/self/statm", "r");
    long all = 0, pages = 0;
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2) {
        return 3;
    }
    fclose(file);
    printf("{\"usable\": %.4f, \"rss\": %ld}\n", (double)usable / count, pages * sysconf(_SC_PAGESIZE));
    return 0;
}
