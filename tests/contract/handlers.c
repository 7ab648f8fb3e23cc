/*
 * handlers.c: malloc and free in signal handlers, while every thread is in malloc and free most of the
 * time. POSIX promises nothing here, and glibc may hang; crash handlers and profilers do it all the same.
 *
 * 2 threads and main allocate; main sends each of them a signal 20,000 times in all. The handler takes
 * three blocks, one of them large, fills them, keeps them until its next call, and frees those of the last.
 * Nothing may hang (alarm), crash, or come out twice: each block is full of its owner's byte when freed.
 */
#include "check.h"

#include <pthread.h>
#include <signal.h>

enum { THREADS = 2, SIGNALS = 20000, SLOTS = 128 };

static _Thread_local unsigned char *kept[3];
static _Thread_local unsigned calls;
static unsigned handled;
static int stop;

static void fill(unsigned char *block, size_t size, unsigned char byte)
{
    block[0] = block[size - 1] = block[size / 2] = byte;
}

static void on_signal(int number)
{
    static const size_t sizes[] = {24, 700, 100000};
    (void)number;
    int saved = errno;
    calls++;
    for (int i = 0; i < 3; i++) {
        if (kept[i] != NULL)
            CHECK(kept[i][0] == 0xee && kept[i][sizes[i] - 1] == 0xee && kept[i][sizes[i] / 2] == 0xee);
        free(kept[i]);
        kept[i] = NULL;
        if (i == 2 && calls % 16 != 0)
            continue;
        kept[i] = must_malloc(sizes[i]);
        fill(kept[i], sizes[i], 0xee);
    }
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
    errno = saved;
}

static void *allocates(void *argument)
{
    unsigned char *blocks[SLOTS] = {0};
    size_t sizes[SLOTS] = {0};
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        seed = seed * 1103515245 + 12345;
        unsigned slot = (seed >> 16) % SLOTS;
        if (blocks[slot] != NULL)
            CHECK(blocks[slot][0] == slot && blocks[slot][sizes[slot] - 1] == slot);
        free(blocks[slot]);
        sizes[slot] = (seed >> 8) % 64 == 0 ? 50000 : (seed >> 4) % 1000 + 1;
        blocks[slot] = must_malloc(sizes[slot]);
        fill(blocks[slot], sizes[slot], (unsigned char)slot);
    }
    for (int i = 0; i < SLOTS; i++)
        free(blocks[i]);
    return NULL;
}

int main(void)
{
    alarm(60);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, allocates, (void *)(uintptr_t)(i + 3)) == 0);
    for (unsigned i = 0; i < SIGNALS; i++) {
        CHECK(pthread_kill(threads[i % THREADS], SIGUSR1) == 0);
        for (int spin = 0; spin < 50; spin++)
            free(must_malloc((size_t)spin * 30 + 1));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(handled > 100);
    say("handlers ok\n");
    return 0;
}
