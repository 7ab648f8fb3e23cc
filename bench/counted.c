/* counted: makes heap events and keeps their true number where a SIGKILL cannot reach it.
 *
 *   counted COUNTER_FILE EVENTS
 *
 *   malloc ──► count in a shared mapping ──► free ──► count …      the file outlives the process
 *
 * N1  The counter is raised after the call returns, so at any moment it is the number of finished
 *     events or one less. A recorder that says how much it lost can be held to it.
 * N2  Prints "done N" and exits 0 if it is let to finish.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    uint64_t events = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    int file = events ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, 8)) {
        fprintf(stderr, "usage: counted COUNTER_FILE EVENTS\n");
        return 2;
    }
    volatile uint64_t *count = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (count == MAP_FAILED) return 2;
    void *volatile blocks[64] = {0};
    uint64_t state = 42;
    while (*count < events) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        unsigned slot = state >> 58;
        if (blocks[slot]) {
            free(blocks[slot]);
            blocks[slot] = NULL;
        } else {
            blocks[slot] = malloc(16 + (state >> 40 & 255));
            if (!blocks[slot]) return 1;
        }
        ++*count;
    }
    printf("done %llu\n", (unsigned long long)*count);
    return 0;
}
