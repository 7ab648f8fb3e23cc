/*
 * conveyor.c: two producers and two consumers, each pair with a ring of 256 places.
 *
 *   producer n takes 50000 blocks of 16 to 2015 bytes (by its own seed), fills them and puts them into its ring;
 *   consumer n keeps the last 500 it got and frees the one that is 500 older: 100000 remote frees, 1000 blocks live
 *   at the end, which are freed by the consumers too: none live
 * Beside those, glibc's own blocks for threads.
 */
#include "check.h"

#include <pthread.h>
#include <semaphore.h>

enum { BLOCKS = 50000, RING = 256, KEPT = 500 };

static struct belt {
    void *ring[RING];
    sem_t filled, empty;
    unsigned seed;
    long bytes;
} belts[2];

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        CHECK(errno == EINTR);
}

static void *producer(void *argument)
{
    struct belt *belt = argument;
    for (int i = 0; i < BLOCKS; i++) {
        belt->seed = belt->seed * 1664525u + 1013904223u;
        size_t size = 16 + (belt->seed >> 16) % 2000;
        char *block = must_malloc(size);
        memset(block, i, size);
        belt->bytes += (long)size;
        wait_for(&belt->empty);
        belt->ring[i % RING] = block;
        sem_post(&belt->filled);
    }
    return NULL;
}

static void *consumer(void *argument)
{
    struct belt *belt = argument;
    static __thread char *kept[KEPT];
    for (int i = 0; i < BLOCKS; i++) {
        wait_for(&belt->filled);
        char *block = belt->ring[i % RING];
        sem_post(&belt->empty);
        CHECK(block[15] == (char)i);
        free(kept[i % KEPT]);
        kept[i % KEPT] = block;
    }
    for (int i = 0; i < KEPT; i++)
        free(kept[i]);
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    for (int n = 0; n < 2; n++) {
        belts[n].seed = 11u + (unsigned)n;
        CHECK(sem_init(&belts[n].filled, 0, 0) == 0 && sem_init(&belts[n].empty, 0, RING) == 0);
        CHECK(pthread_create(&threads[n], NULL, producer, &belts[n]) == 0);
        CHECK(pthread_create(&threads[2 + n], NULL, consumer, &belts[n]) == 0);
    }
    for (int n = 0; n < 4; n++)
        CHECK(pthread_join(threads[n], NULL) == 0);
    say("conveyor: %ld bytes\n", belts[0].bytes + belts[1].bytes);
    return 0;
}
