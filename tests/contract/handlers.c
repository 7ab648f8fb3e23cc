/*
 * handlers.c CASE: malloc and free in signal handlers. POSIX promises nothing here, and glibc may hang;
 * crash handlers do it all the same.
 *
 *   crash    300 children, each in malloc and free most of the time, with a second thread that is too. A
 *            signal comes after 1 to 2,000 microseconds; its handler takes and frees blocks of all kinds
 *            and ends the process. It must not hang (alarm), crash, or be refused memory.
 *   go-on    the handler returns, and what it interrupted goes on: 20,000 times in 2 threads. The handler
 *            keeps its blocks until its next call; each block must be full of its owner's byte when freed.
 */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

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

static void go_on(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, allocates, (void *)(uintptr_t)(i + 3)) == 0);
    for (unsigned i = 0; i < SIGNALS; i++) {
        unsigned before = __atomic_load_n(&handled, __ATOMIC_RELAXED);
        CHECK(pthread_kill(threads[i % THREADS], SIGUSR1) == 0);
        while (__atomic_load_n(&handled, __ATOMIC_RELAXED) == before)
            free(must_malloc((size_t)i % 1500 + 1));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void report_and_end(int number)
{
    (void)number;
    static const size_t sizes[] = {1, 24, 100, 700, 5000, 32768, 32769, 100000, 3 << 20};
    char *blocks[sizeof sizes / sizeof *sizes];
    for (int round = 0; round < 20; round++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            blocks[i] = must_malloc(sizes[i]);
            memset(blocks[i], 7, sizes[i] < 5000 ? sizes[i] : 5000);
            blocks[i] = realloc(blocks[i], sizes[i] + 100);
            CHECK(blocks[i] != NULL && blocks[i][0] == 7);
        }
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
            free(blocks[i]);
    }
    _exit(0);
}

static void crash(void)
{
    for (int child = 0; child < 300; child++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            alarm(60);
            struct sigaction action = {.sa_handler = report_and_end};
            CHECK(sigaction(SIGPROF, &action, NULL) == 0);
            pthread_t thread;
            sigset_t profile;
            sigemptyset(&profile);
            sigaddset(&profile, SIGPROF);
            /* The other thread must not be the one that is interrupted. */
            CHECK(pthread_sigmask(SIG_BLOCK, &profile, NULL) == 0);
            CHECK(pthread_create(&thread, NULL, allocates, (void *)1) == 0);
            CHECK(pthread_sigmask(SIG_UNBLOCK, &profile, NULL) == 0);
            struct itimerval soon = {.it_value = {0, child * 37 % 2000 + 1}};
            CHECK(setitimer(ITIMER_PROF, &soon, NULL) == 0);
            allocates((void *)(uintptr_t)(child + 2));
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        if (status != 0) {
            say("child %d ended with status %x\n", child, status);
            _exit(1);
        }
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    alarm(280);
    if (strcmp(argv[1], "crash") == 0)
        crash();
    else
        go_on();
    say("handlers ok\n");
    return 0;
}
