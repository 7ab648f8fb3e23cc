/*
 * threads.c: threads that come and go.
 *
 *   part 1  10000 threads, at most 8 at a time, each takes 1 x 97 bytes and ends: 10000 live
 *   part 2  producer and consumer: 20000 x 113 made by "producer" and freed by "consumer"
 *           through a ring of 64: none live, 20000 remote frees
 *   part 3  50 threads named "tls-00" ... "tls-49" put a block of 127 into a pthread_key whose
 *           destructor frees it when the thread has ended its function, and takes and frees
 *           131 there: 50 x 127, 50 x 131, none live
 *   part 4  main frees the first 5000 blocks of part 1: 5000 live, 5000 remote frees of ended
 *           threads' blocks
 * Beside those, glibc's own blocks for thread stacks and TLS.
 */
#include "check.h"

#include <pthread.h>
#include <semaphore.h>

enum { SHORT = 10000, AT_ONCE = 8, RING = 64, MESSAGES = 20000 };

static void *left_behind[SHORT];
static void *ring[RING];
static sem_t filled, empty;
static pthread_key_t key;
static int destroyed;

NOINLINE static void *short_thread(void *slot)
{
    *(void **)slot = must_malloc(97);
    return NULL;
}

static void many_threads(void)
{
    pthread_t threads[AT_ONCE];
    for (int at = 0; at < SHORT; at += AT_ONCE) {
        for (int i = 0; i < AT_ONCE; i++)
            CHECK(pthread_create(&threads[i], NULL, short_thread, &left_behind[at + i]) == 0);
        for (int i = 0; i < AT_ONCE; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0)
        CHECK(errno == EINTR);
}

NOINLINE static void *producer(void *unused)
{
    pthread_setname_np(pthread_self(), "producer");
    for (int i = 0; i < MESSAGES; i++) {
        char *message = must_malloc(113);
        message[0] = (char)i;
        wait_for(&empty);
        ring[i % RING] = message;
        sem_post(&filled);
    }
    return unused;
}

NOINLINE static void *consumer(void *unused)
{
    pthread_setname_np(pthread_self(), "consumer");
    for (int i = 0; i < MESSAGES; i++) {
        wait_for(&filled);
        char *message = ring[i % RING];
        CHECK(message[0] == (char)i);
        sem_post(&empty);
        free(message);
    }
    return unused;
}

static void two_threads(void)
{
    pthread_t threads[2];
    CHECK(sem_init(&filled, 0, 0) == 0 && sem_init(&empty, 0, RING) == 0);
    CHECK(pthread_create(&threads[0], NULL, producer, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, consumer, NULL) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
}

NOINLINE static void at_thread_end(void *block)
{
    free(block);
    void *another = must_malloc(131);
    free(another);
    __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED);
}

NOINLINE static void *with_tls(void *number)
{
    char name[16];
    snprintf(name, sizeof name, "tls-%02d", (int)(intptr_t)number);
    pthread_setname_np(pthread_self(), name);
    CHECK(pthread_setspecific(key, must_malloc(127)) == 0);
    return NULL;
}

static void tls_threads(void)
{
    pthread_t thread;
    CHECK(pthread_key_create(&key, at_thread_end) == 0);
    for (intptr_t i = 0; i < 50; i++) {
        CHECK(pthread_create(&thread, NULL, with_tls, (void *)i) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(destroyed == 50);
}

int main(void)
{
    many_threads();
    two_threads();
    tls_threads();
    for (int i = 0; i < SHORT / 2; i++)
        free(left_behind[i]);
    say("threads: %d short, %d messages, %d destructors\n", SHORT, MESSAGES, destroyed);
    return 0;
}
