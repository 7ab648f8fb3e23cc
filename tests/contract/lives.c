/*
 * lives.c: blocks that outlive their threads, and threads that free after their own end.
 *
 *   short     10,000 threads, 8 at a time; each takes 20 blocks and leaves one live: 400 bytes. Freed by
 *             main in the end. Resident memory must not grow by more than 60 MiB meanwhile: 10,000
 *             blocks are 4 MB, and a heap lost with each thread would be hundreds.
 *   keys      destructors of keys that free and allocate, in all rounds that pthreads has: also after the
 *             allocator's own destructor has run.
 *   remote    each thread frees what its neighbour took, after that one has ended
 *   detached  threads that nobody joins
 */
#include "check.h"

#include <pthread.h>

enum { SHORT = 10000, AT_ONCE = 8, KEYS = 40 };

static void *left[SHORT];

static size_t resident_kb(void)
{
    char text[4096];
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    CHECK(file != NULL);
    size_t kb = 0;
    while (fgets(text, sizeof text, file) != NULL)
        if (sscanf(text, "Rss: %zu", &kb) == 1)
            break;
    fclose(file);
    return kb;
}

static void *lives_shortly(void *slot)
{
    void *blocks[20];
    for (int i = 0; i < 20; i++) {
        blocks[i] = must_malloc((size_t)(i * 97 + 1));
        memset(blocks[i], i, (size_t)(i * 97 + 1));
    }
    for (int i = 0; i < 20; i++)
        free(blocks[i]);
    char *kept = must_malloc(400);
    memset(kept, 'k', 400);
    *(void **)slot = kept;
    return NULL;
}

static void many_short(void)
{
    size_t before = resident_kb();
    for (int i = 0; i < SHORT; i += AT_ONCE) {
        pthread_t threads[AT_ONCE];
        for (int j = 0; j < AT_ONCE; j++)
            CHECK(pthread_create(&threads[j], NULL, lives_shortly, &left[i + j]) == 0);
        for (int j = 0; j < AT_ONCE; j++)
            CHECK(pthread_join(threads[j], NULL) == 0);
    }
    size_t grown = resident_kb() - before;
    if (grown > 60 << 10) {
        say("grown by %zu KiB\n", grown);
        _exit(1);
    }
    for (int i = 0; i < SHORT; i++) {
        CHECK(((char *)left[i])[399] == 'k');
        free(left[i]);
    }
    say("short lives ok\n");
}

static pthread_key_t keys[KEYS];
static unsigned destroyed;

/* Frees its block, allocates, and sets the key again while there are rounds. */
static void destroy(void *value)
{
    size_t round = *(size_t *)value;
    free(value);
    free(must_malloc(round * 1000 + 10));
    __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED);
    if (round + 1 < 4) {
        size_t *next = must_malloc(sizeof *next);
        *next = round + 1;
        CHECK(pthread_setspecific(keys[0], next) == 0);
    }
}

static void *sets_keys(void *nothing)
{
    free(must_malloc(50));
    for (int i = 0; i < KEYS; i++) {
        size_t *value = must_malloc(sizeof *value);
        *value = i == 0 ? 0 : 3;
        CHECK(pthread_setspecific(keys[i], value) == 0);
    }
    return nothing;
}

static void key_destructors(void)
{
    for (int i = 0; i < KEYS; i++)
        CHECK(pthread_key_create(&keys[i], destroy) == 0);
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, sets_keys, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    say("destroyed: %u\n", destroyed);
}

static void *takes(void *slots)
{
    for (int i = 0; i < 1000; i++) {
        ((void **)slots)[i] = must_malloc((size_t)i * 3 + 1);
        memset(((void **)slots)[i], 7, (size_t)i * 3 + 1);
    }
    return NULL;
}

static void *gives(void *slots)
{
    for (int i = 0; i < 1000; i++)
        free(((void **)slots)[i]);
    return NULL;
}

static void remote(void)
{
    static void *slots[1000];
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, takes, slots) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, gives, slots) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    say("freed after their threads ok\n");
}

static unsigned done;

static void *detached(void *nothing)
{
    free(must_malloc(5000));
    __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
    return nothing;
}

static void nobody_joins(void)
{
    for (unsigned i = 0; i < 200; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, detached, NULL) == 0);
        CHECK(pthread_detach(thread) == 0);
        while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) != i + 1)
            usleep(50); /* CLOCK: poll step of a wait that the alarm bounds */
    }
    say("detached ok\n");
}

int main(void)
{
    alarm(280);
    many_short();
    key_destructors();
    remote();
    nobody_joins();
    say("lives ok\n");
    return 0;
}
