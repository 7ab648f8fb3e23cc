/*
 * sampled.c: blocks by law, for recordings of a sample of them.
 *
 * hold_SIZE_KIB allocates KIB * 1024 / SIZE blocks of SIZE bytes (rounded down), writes all of them, and releases the fourth, eighth, twelfth
 * … of them at once: with b blocks, b - b / 4 live, to the end.
 *   always     5 blocks of 1 MiB and 3 of 200000: they live to the end
 *   trade      four threads make 40,000 steps each: malloc, calloc, posix_memalign, aligned_alloc, realloc (larger, smaller, of
 *              null) of 1 to 20,000 bytes into slots that all share, releasing what was there, whoever acquired it; at the
 *              end all is released: nothing of `trade` lives
 *   copied     3000 blocks of 1000; a child of fork releases every other one, and in `born` acquires 1000 of 2000, which
 *              live to its end
 *   edges      `exact` acquires 900 blocks of 4096 bytes (malloc, calloc, realloc of null), which live to the end, `nothing` 40,000
 *              of none, which are released; products that overflow are refused
 *   small_copy a child of fork acquires and releases one block of 10 bytes and ends at once
 */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

enum { MOST = 200000, SLOTS = 512, THREADS = 4, STEPS = 40000 };

static void *kept[MOST];
static int count;

#define HOLD(size, kib)                                        \
    NOINLINE static void hold_##size##_##kib(void)             \
    {                                                          \
        long blocks = (long)(kib) * 1024 / (size);             \
        for (long n = 1; n <= blocks; n++) {                   \
            void *block = must_malloc(size);                   \
            memset(block, 1, size);                            \
            if (n % 4 == 0)                                    \
                free(block);                                   \
            else                                               \
                kept[count++ % MOST] = block;                  \
        }                                                      \
        NO_TAIL_CALL();                                        \
    }
#define ALL_HOLD                                                                                                       \
    HOLD(24, 700) HOLD(40, 1000) HOLD(100, 800) HOLD(333, 1500) HOLD(1000, 3000) HOLD(1024, 700) HOLD(2500, 900)       \
    HOLD(4096, 1200) HOLD(5000, 4000) HOLD(8000, 800) HOLD(10000, 1000) HOLD(12345, 2000) HOLD(16384, 3000)            \
    HOLD(20000, 5000) HOLD(25000, 2500) HOLD(30000, 6000)
ALL_HOLD
#undef HOLD
#define HOLD(size, kib) hold_##size##_##kib,
static void (*const all[])(void) = {ALL_HOLD};

NOINLINE static void always(void)
{
    for (int n = 0; n < 5; n++)
        kept[count++ % MOST] = memset(must_malloc(1 << 20), 1, 1 << 20);
    for (int n = 0; n < 3; n++)
        kept[count++ % MOST] = memset(must_malloc(200000), 1, 200000);
    NO_TAIL_CALL();
}

static void *slots[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Puts a block into a slot; returns what was there. */
static void *swap(unsigned at, void *block)
{
    pthread_mutex_lock(&lock);
    void *before = slots[at % SLOTS];
    slots[at % SLOTS] = block;
    pthread_mutex_unlock(&lock);
    return before;
}

NOINLINE static void *trade(void *seed)
{
    unsigned long random = (unsigned long)(uintptr_t)seed;
    for (int n = 0; n < STEPS; n++) {
        random = random * 6364136223846793005ul + 1442695040888963407ul;
        unsigned at = (unsigned)(random >> 40);
        size_t size = 1 + (random >> 33) % (n % 16 == 0 ? 20000 : 600);
        void *block = NULL;
        switch ((random >> 60) & 7) {
        case 0:
            block = calloc(3, size / 3 + 1);
            break;
        case 1:
            CHECK(posix_memalign(&block, 64, size) == 0);
            break;
        case 2:
            block = aligned_alloc(32, (size + 31) / 32 * 32);
            break;
        case 3:
        case 4:
            block = realloc(swap(at, NULL), size);
            break;
        case 5:
            free(swap(at, NULL));
            block = realloc(NULL, size);
            break;
        default:
            block = must_malloc(size);
        }
        CHECK(block != NULL);
        OPAQUE(block);
        /* What cannot be had leaves the block as it is. */
        if (n % 64 == 0)
            CHECK(realloc(block, PTRDIFF_MAX) == NULL);
        free(swap(at, block));
    }
    return NULL;
}

static void trades(void)
{
    pthread_t ids[THREADS];
    for (uintptr_t n = 0; n < THREADS; n++)
        CHECK(pthread_create(&ids[n], NULL, trade, (void *)(n + 1)) == 0);
    for (int n = 0; n < THREADS; n++)
        CHECK(pthread_join(ids[n], NULL) == 0);
    for (int n = 0; n < SLOTS; n++)
        free(slots[n]);
}

NOINLINE static void born(void)
{
    for (int n = 0; n < 1000; n++)
        kept[count++] = must_malloc(2000);
    NO_TAIL_CALL();
}

NOINLINE static void copied(void)
{
    for (int n = 0; n < 3000; n++)
        kept[count++] = must_malloc(1000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int n = 0; n < 3000; n += 2)
            free(kept[n]);
        born();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

NOINLINE static void exact(void)
{
    for (int n = 0; n < 300; n++) {
        void *own[3] = {must_malloc(4096), calloc(2, 2048), realloc(NULL, 4096)};
        for (int k = 0; k < 3; k++) {
            CHECK(own[k] != NULL);
            kept[count++] = own[k];
        }
    }
    NO_TAIL_CALL();
}

NOINLINE static void nothing(void)
{
    for (int n = 0; n < 40000; n++) {
        void *block = malloc(0);
        OPAQUE(block);
        free(block);
    }
    NO_TAIL_CALL();
}

static void edges(void)
{
    size_t half = SIZE_MAX / 2;
    OPAQUE(half);
    for (int n = 0; n < 100; n++) {
        errno = 0;
        CHECK(calloc(half, 3) == NULL && errno == ENOMEM);
        CHECK(calloc(half + 2, 2) == NULL && errno == ENOMEM);
    }
    exact();
    nothing();
}

static void small_copy(void)
{
    kept[count++] = must_malloc(1000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        void *block = must_malloc(10);
        OPAQUE(block);
        free(block);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "law";
    if (strcmp(what, "law") == 0) {
        for (size_t n = 0; n < sizeof all / sizeof *all; n++)
            all[n]();
        always();
    } else if (strcmp(what, "trade") == 0) {
        trades();
    } else if (strcmp(what, "edges") == 0) {
        edges();
    } else if (strcmp(what, "small_copy") == 0) {
        small_copy();
    } else {
        copied();
    }
    say("sampled ok\n");
    return 0;
}
