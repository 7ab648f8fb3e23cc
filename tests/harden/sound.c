// Threads that do nothing wrong, checking every byte: whatever is said of this program is false.

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "operators.h"

enum { THREADS = 4, SLOTS = 300, ROUNDS = 12000, MAPPINGS = 40000 };

struct held {
    unsigned char *p;
    size_t n;
    unsigned char fill;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct held shared[SLOTS];

static void fail(const char *what) {
    fprintf(stderr, "sound: %s\n", what);
    abort();
}

static uint32_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static size_t size(uint64_t *seed) {
    switch (next(seed) % 16) {
    case 0: return 1 + next(seed) % 200000;
    case 1: return 32700 + next(seed) % 100;
    case 2: return next(seed) % 5000;
    default: return next(seed) % 300;
    }
}

static void check(const struct held *h) {
    for (size_t i = 0; i < h->n; i++)
        if (h->p[i] != h->fill) fail("a byte has changed");
}

static void make(struct held *h, uint64_t *seed) {
    h->n = size(seed);
    size_t align = 16;
    switch (next(seed) % 8) {
    case 0:
        h->p = calloc(h->n, 1);
        for (size_t i = 0; i < h->n; i++)
            if (h->p[i] != 0) fail("calloc is not zero");
        break;
    case 1:
        align = (size_t)16 << next(seed) % 12;
        h->p = memalign(align, h->n);
        break;
    default: h->p = malloc(h->n);
    }
    if (h->p == NULL) fail("no memory");
    if ((uintptr_t)h->p % align != 0) fail("not aligned");
    size_t usable = malloc_usable_size(h->p);
    if (usable < h->n) fail("usable is less than requested");
    if (next(seed) % 4 == 0) h->n = usable;
    h->fill = next(seed);
    memset(h->p, h->fill, h->n);
}

static void change(struct held *h, uint64_t *seed) {
    size_t n = size(seed) + 1;
    unsigned char *p = realloc(h->p, n);
    if (p == NULL) fail("no memory for realloc");
    h->p = p;
    if (n < h->n) h->n = n;
    check(h);
    h->n = n;
    memset(p, h->fill, n);
}

static void *work(void *number) {
    uint64_t seed = (uintptr_t)number * 77;
    struct held mine[SLOTS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        struct held *h = &mine[next(&seed) % SLOTS];
        if (h->p == NULL) {
            make(h, &seed);
        } else if (next(&seed) % 4 == 0) {
            change(h, &seed);
        } else if (next(&seed) % 3 == 0) {
            // To another thread, which frees it.
            pthread_mutex_lock(&lock);
            struct held *place = &shared[next(&seed) % SLOTS], other = *place;
            *place = *h;
            pthread_mutex_unlock(&lock);
            *h = other;
        } else {
            check(h);
            free(h->p);
            h->p = NULL;
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        if (mine[i].p) check(&mine[i]);
        free(mine[i].p);
    }
    return NULL;
}

static void at_end(void *p) {
    free(p);
    free(malloc(100));
}

static void children(void) {
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (int k = 0; k < 200; k++) free(realloc(malloc(k), k * 40 + 1));
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) fail("a child failed");
    }
}

// More large blocks at once than the kernel has mappings for guards.
static void mappings(void) {
    static char *blocks[MAPPINGS];
    for (int i = 0; i < MAPPINGS; i++) {
        blocks[i] = malloc(33008);
        if (blocks[i] == NULL) fail("no memory for large blocks");
        if (i % 64 == 0) blocks[i][0] = i;
    }
    // What the program maps itself; by turns, so that the kernel cannot make one of two.
    for (int i = 0; i < 5000; i++)
        if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            fail("no mappings are left for the program");
    for (int i = 0; i < MAPPINGS; i++) {
        if (i % 64 == 0 && blocks[i][0] != (char)i) fail("a large block has changed");
        free(blocks[i]);
    }
}

// So many blocks of one size that it gets a class of its own, which is no multiple of 64: a little less than that,
// asked for at a multiple of 64, must not come from it.
static void aligned(void) {
    static void *blocks[4000];
    static volatile size_t align = 64;  // of a constant the compiler knows that memalign heeds it
    for (int i = 0; i < 4000; i++) blocks[i] = malloc(1088);
    for (int i = 0; i < 4000; i++) {
        void *p = memalign(align, 1070);
        if ((uintptr_t)p % align != 0) fail("not aligned beside a class of its own");
        free(blocks[i]);
        blocks[i] = p;
    }
    for (int i = 0; i < 4000; i++) free(blocks[i]);
}

// Each way of C++ to make a block, and each that may end it: with its size and without, and by free where a library's own
// operator does that.
static void operators(void) {
    static const size_t SIZES[] = {0, 1, 7, 16, 40, 41, 1000, 32760, 32768, 32769, 400000};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        size_t n = SIZES[i];
        delete_one(new_one(n)), delete_one_sized(new_one(n), n);
        delete_array(new_array(n)), delete_array_sized(new_array(n), n);
        delete_one(new_one_or_null(n, NULL)), delete_array(new_array_or_null(n, NULL));
        for (size_t align = 32; align <= 8192; align *= 4) {
            delete_one_aligned(new_one_aligned(n, align), align);
            delete_one_sized_aligned(new_one_aligned(n, align), n, align);
            delete_array_aligned(new_array_aligned(n, align), align);
            delete_array_sized_aligned(new_array_aligned(n, align), n, align);
        }
        free(new_one(n)), delete_one(malloc(n)), delete_array(malloc(n));
        if (free_sized) free_sized(malloc(n), n), free_aligned_sized(aligned_alloc(64, n), 64, n);
    }
    delete_one_sized(NULL, 8), delete_array_sized(NULL, 8), delete_array(NULL);
    if (free_sized) free_sized(NULL, 8);
}

int main(void) {
    pthread_key_t key;
    pthread_key_create(&key, at_end);
    pthread_setspecific(key, malloc(10));
    pthread_t ids[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&ids[i], NULL, work, (void *)(i + 1));
    children();
    for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
    aligned();
    operators();
    mappings();
    errno = 77;
    free(malloc(40));
    free(malloc(400000));
    if (errno != 77) fail("free changed errno");
    puts("sound");
    pthread_exit(NULL);
}
