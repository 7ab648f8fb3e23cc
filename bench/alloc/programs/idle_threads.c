/* idle_threads: threads that allocate, free and then wait, so that what each of them still holds can be measured.
 *
 *   idle_threads THREADS KEPT ──► "ready" ── stdin: "go" ──► threads at work ──► all wait ──► "idle"
 *   stdin: "trim" ──► malloc_trim(0) ──► "trimmed"      stdin: "floor" ──► page floor of what was kept, whose malloc it is
 *
 * I1  Each thread makes and frees 200 blocks of 16 to 4,015 bytes five times, every byte written to, and keeps the first
 *     KEPT of the last 200. What is kept is checked at "floor": a page that was given back too early is seen.
 * I2  From "idle" on nothing of the program's calls the allocator until it is told to.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 200, ROUNDS = 5, MOST = 4000, STACK = 64 << 10 };
typedef struct {
    unsigned char *at;
    size_t bytes;
} block_t;
static pthread_barrier_t all;
static block_t *kept;
static size_t keep;

static void die(const char *what) {
    ssize_t ignored = write(2, what, strlen(what));
    (void)ignored;
    _exit(3);
}

static void say(const char *word) {
    if (write(1, word, strlen(word)) < 0) _exit(1);
}

static void *work(void *given) {
    size_t thread = (size_t)given;
    uint32_t random = (uint32_t)thread + 1;
    block_t own[BLOCKS] = {{0}};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            random = random * 1664525 + 1013904223;
            own[i].bytes = 16 + (random >> 9) % MOST;
            own[i].at = malloc(own[i].bytes);
            if (!own[i].at) die("idle_threads: malloc returned null\n");
            memset(own[i].at, (int)(thread & 127) + 1, own[i].bytes);
        }
        for (size_t i = round == ROUNDS - 1 ? keep : 0; i < BLOCKS; i++) free(own[i].at);
    }
    memcpy(kept + thread * keep, own, keep * sizeof *own);
    pthread_barrier_wait(&all);
    for (;;) pause();
    return NULL;
}

static int by_value(const void *a, const void *b) {
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return (x > y) - (x < y);
}

static void *mapped(size_t bytes) {
    void *at = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("idle_threads: no memory of its own\n");
    return at;
}

static void say_floor(size_t threads) {
    size_t pages = 0, floor = 0, live = 0;
    uintptr_t *list = mapped(threads * keep * (MOST / 4096 + 3) * sizeof *list);
    for (size_t i = 0; i < threads * keep; i++) {
        for (size_t byte = 0; byte < kept[i].bytes; byte++)
            if (kept[i].at[byte] != ((i / keep) & 127) + 1) die("idle_threads: a live block's content has changed\n");
        live += kept[i].bytes;
        for (uintptr_t page = (uintptr_t)kept[i].at >> 12; page <= ((uintptr_t)kept[i].at + kept[i].bytes - 1) >> 12; page++)
            list[pages++] = page;
    }
    qsort(list, pages, sizeof *list, by_value);
    for (size_t i = 0; i < pages; i++) floor += i == 0 || list[i] != list[i - 1];
    Dl_info info = {0};
    dladdr((void *)malloc, &info);
    dprintf(1, "{\"live_kb\": %zu, \"floor_kb\": %zu, \"malloc\": \"%s\"}\n", live >> 10, floor * 4, info.dli_fname ? info.dli_fname : "?");
}

int main(int argc, char **argv) {
    size_t threads = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    keep = argc == 3 ? strtoul(argv[2], NULL, 10) : BLOCKS + 1;
    if (threads == 0 || threads > 10000 || keep > BLOCKS) {
        fprintf(stderr, "usage: idle_threads THREADS KEPT (at most 10000, at most %d)\n", BLOCKS);
        return 2;
    }
    kept = mapped(threads * keep * sizeof *kept);
    pthread_barrier_init(&all, NULL, (unsigned)threads + 1);
    say("ready\n");
    char word[16];
    for (;;) {
        ssize_t got = read(0, word, sizeof word - 1);
        if (got <= 0) return 0;
        word[got] = 0;
        if (!strcmp(word, "go\n")) {
            pthread_attr_t small;
            pthread_t id;
            pthread_attr_init(&small);
            pthread_attr_setstacksize(&small, STACK);
            for (size_t i = 0; i < threads; i++)
                if (pthread_create(&id, &small, work, (void *)i)) die("idle_threads: cannot start a thread\n");
            pthread_barrier_wait(&all);
            say("idle\n");
        } else if (!strcmp(word, "trim\n")) {
            malloc_trim(0);
            say("trimmed\n");
        } else if (!strcmp(word, "floor\n")) {
            say_floor(threads);
        } else {
            die("idle_threads: expected go, trim or floor\n");
        }
    }
}
