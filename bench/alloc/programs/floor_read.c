/* floor_read: the live blocks that floor.so has noted, and the pages under them.
 *
 *   floor_read FILE [PID]  ──► {"blocks": …, "live_kb": …, "floor_kb": …}
 *
 * With PID, a page counts only if it is resident in that process (/proc/PID/pagemap): a byte that was asked for and
 * never touched, or lies in memory that the program mapped and does not use, holds no page.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    uintptr_t at;
    size_t bytes;
} slot_t;

static int by_value(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static int resident(int pagemap, uintptr_t page) {
    uint64_t entry;
    if (pagemap < 0) return 1;
    return pread(pagemap, &entry, 8, (off_t)page * 8) == 8 && (entry >> 63);
}

int main(int argc, char **argv) {
    struct stat info;
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &info)) {
        fprintf(stderr, "usage: floor_read FILE [PID]\n");
        return 2;
    }
    slot_t *table = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (table == MAP_FAILED) return perror("floor_read"), 2;
    size_t slots = (size_t)info.st_size / sizeof *table, blocks = 0, live = 0, pages = 0, floor = 0;
    for (size_t i = 0; i < slots; i++)
        if (table[i].at > 1 && table[i].bytes) pages += (table[i].at + table[i].bytes - 1) / 4096 - table[i].at / 4096 + 1;
    uintptr_t *all = malloc((pages + 1) * sizeof *all);
    if (!all) return perror("floor_read"), 2;
    pages = 0;
    for (size_t i = 0; i < slots; i++) {
        if (table[i].at <= 1) continue;
        blocks++;
        live += table[i].bytes;
        if (!table[i].bytes) continue;
        for (uintptr_t page = table[i].at / 4096; page <= (table[i].at + table[i].bytes - 1) / 4096; page++) all[pages++] = page;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/pagemap", argc > 2 ? argv[2] : "-");
    int pagemap = argc > 2 ? open(path, O_RDONLY) : -1;
    if (argc > 2 && pagemap < 0) return perror(path), 2;
    qsort(all, pages, sizeof *all, by_value);
    for (size_t i = 0; i < pages; i++)
        if (i == 0 || all[i] != all[i - 1]) floor += resident(pagemap, all[i]);
    printf("{\"blocks\": %zu, \"live_kb\": %zu, \"floor_kb\": %zu}\n", blocks, live >> 10, floor * 4);
    return 0;
}
