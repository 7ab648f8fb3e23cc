/*
 * linked.c: a program that is linked with an allocator of its own which exports no malloc, under mimalloc's names, as Rust
 * programs are. It gets memory by mmap alone, so all that passes the C library of it is one mapping.
 *
 *   size    blocks  live   by
 *   97        1000   600   load, mi_malloc; 400 are ended by drop_some, mi_free
 *   130         50    50   zeroed, mi_zalloc, which calls mi_malloc: one block each
 *   200         10     0   grow, mi_malloc, each made larger by mi_realloc: 5000, then refused (2^41), then 9000
 *   5000        10     0
 *   9000        10    10
 *   333        100     0   a thread, mi_malloc; ended by main
 *   144          1     1   mi_posix_memalign
 *   77          20    20   a child of fork: not of this process
 *
 * mi_heap_destroy, which ends many blocks in one step and so is only counted, is called three times.
 *
 * A block's usable bytes are the next multiple of 64. The allocator counts what lives, and says so at the end: 600 + 50 +
 * 10 + 1 blocks, 600 * 128 + 50 * 192 + 10 * 9024 + 192 bytes.
 *
 * The beginnings of the functions are of different kinds: a comparison and a short jump, pushes, a word at a distance.
 *
 * With LIBRARY it is a library whose run_linked does all that, and its constructor gets seven blocks of 55 bytes (64 usable),
 * which live on. SAYS are words that its allocator prints if it has no memory.
 */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* A real one calls the C library in some cases, so that its callers expect every register to change (noipa). */
#define OF_THE_ALLOCATOR __attribute__((noinline, noclone, noipa))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *at, *end;
static size_t live_blocks, live_bytes;

#define MARK 0x0e17eea9u

struct head {
    size_t usable;
    unsigned mark, live;
};

size_t mi_usable_size(const void *block);
void *mi_malloc(size_t bytes);
void *mi_zalloc(size_t bytes);
void *mi_realloc(void *old, size_t bytes);
int mi_posix_memalign(void **out, size_t align, size_t bytes);
void mi_heap_destroy(void *heap);
void mi_free(void *block);

OF_THE_ALLOCATOR size_t mi_usable_size(const void *block)
{
    return block == NULL ? 0 : ((const struct head *)block)[-1].usable;
}

OF_THE_ALLOCATOR void *mi_malloc(size_t bytes)
{
    if (bytes > (size_t)1 << 40)
        return NULL;
    size_t usable = (bytes + 63) & ~(size_t)63;
    pthread_mutex_lock(&lock);
    if (at == NULL) {
        at = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        /* As allocators do, by which the recorder knows libraries that may have one. */
        CHECK(madvise(at, 64 << 20, MADV_NORMAL) == 0);
        end = at + (64 << 20);
    }
    CHECK(usable + sizeof(struct head) <= (size_t)(end - at));
    struct head *head = (struct head *)(void *)at;
    at += usable + sizeof *head;
    *head = (struct head){usable, MARK, 1};
    live_blocks++;
    live_bytes += usable;
    pthread_mutex_unlock(&lock);
    return head + 1;
}

OF_THE_ALLOCATOR void *mi_zalloc(size_t bytes)
{
    void *block = mi_malloc(bytes);
    return block == NULL ? NULL : memset(block, 0, bytes);
}

OF_THE_ALLOCATOR void mi_free(void *block)
{
    if (block == NULL)
        return;
    struct head *head = (struct head *)block - 1;
    pthread_mutex_lock(&lock);
    CHECK(head->mark == MARK && head->live);
    head->live = 0;
    live_blocks--;
    live_bytes -= head->usable;
    pthread_mutex_unlock(&lock);
}

OF_THE_ALLOCATOR void *mi_realloc(void *old, size_t bytes)
{
    void *block = mi_malloc(bytes);
    if (old == NULL || block == NULL)
        return block;
    size_t have = mi_usable_size(old);
    memcpy(block, old, have < bytes ? have : bytes);
    mi_free(old);
    return block;
}

OF_THE_ALLOCATOR int mi_posix_memalign(void **out, size_t align, size_t bytes)
{
    CHECK(align <= 16);
    *out = mi_malloc(bytes);
    return *out == NULL ? ENOMEM : 0;
}

OF_THE_ALLOCATOR void mi_heap_destroy(void *heap)
{
    CHECK(heap == NULL);
}

static void *kept[1000];

NOINLINE static void load(void)
{
    for (int i = 0; i < 1000; i++)
        memset(kept[i] = mi_malloc(97), 1, 97);
}

NOINLINE static void drop_some(void)
{
    for (int i = 0; i < 400; i++)
        mi_free(kept[i]);
    mi_free(NULL);
}

NOINLINE static void zeroed(void)
{
    for (int i = 0; i < 50; i++) {
        char *block = mi_zalloc(130);
        OPAQUE(block);
        CHECK(block[129] == 0);
    }
}

NOINLINE static void grow(void)
{
    for (int i = 0; i < 10; i++) {
        char *block = mi_realloc(NULL, 200);
        strcpy(block, "it stays");
        block = mi_realloc(block, 5000);
        errno = 0;
        CHECK(mi_realloc(block, (size_t)1 << 41) == NULL && errno == 0);
        block = mi_realloc(block, 9000);
        CHECK(!strcmp(block, "it stays") && mi_usable_size(block) == 9024);
    }
}

static void *made[100];

static void *thread(void *none)
{
    for (int i = 0; i < 100; i++)
        made[i] = mi_malloc(333);
    return none;
}

static void forks(void)
{
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 20; i++)
            memset(mi_malloc(77), i, 77);
        exit(42);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

#ifdef LIBRARY
#define main run_linked
int run_linked(void);

__attribute__((constructor)) static void begins(void)
{
    static void *early[7];
    for (int i = 0; i < 7; i++)
        early[i] = mi_malloc(55);
    OPAQUE(early[0]);
#ifdef SAYS
    if (early[0] == NULL)
        say(SAYS);
#endif
}
#endif

int main(void)
{
    load();
    drop_some();
    zeroed();
    grow();
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
    for (int i = 0; i < 100; i++)
        mi_free(made[i]);
    void *aligned;
    CHECK(mi_posix_memalign(&aligned, 16, 144) == 0);
    for (int i = 0; i < 3; i++)
        mi_heap_destroy(NULL);
    forks();
    say("linked: %zu blocks, %zu bytes\n", live_blocks, live_bytes);
    return 0;
}
