/*
 * ends.c CASE: every way to end, with atexit functions and destructors that free, and threads that are
 * in malloc at that moment.
 *
 *   return  exit  _exit  quick_exit  abort     what they say; status 0, 7, 8, 9, SIGABRT
 *   thread     exit(5) by another thread than main
 *   main       pthread_exit in main; the process ends with 0 when its last worker has
 *   exec       execv of this program with "return"
 *   kill       SIGKILL
 */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

static void *kept;

static void during_exit(void)
{
    free(kept);
    free(must_malloc(100000));
    say("at exit\n");
}

static void during_quick_exit(void)
{
    free(kept);
    say("at quick exit\n");
}

__attribute__((destructor)) static void at_end(void)
{
    free(must_malloc(77));
    say("destructor\n");
}

static unsigned long allocated;

static void *allocates(void *nothing)
{
    for (unsigned seed = 1;; seed = seed * 1103515245 + 12345) {
        free(must_malloc((seed >> 16) % 3000 + 1));
        __atomic_fetch_add(&allocated, 1, __ATOMIC_RELAXED);
    }
    return nothing;
}

static void *exits(void *nothing)
{
    (void)nothing;
    free(must_malloc(60));
    exit(5);
}

static void *works_on(void *nothing)
{
    for (int i = 0; i < 20000; i++)
        free(must_malloc((size_t)i % 5000 + 1));
    say("worked on\n");
    return nothing;
}

static int ends(const char *way, char **argv)
{
    pthread_t thread;
    if (strcmp(way, "main") == 0) {
        CHECK(pthread_create(&thread, NULL, works_on, NULL) == 0);
        pthread_exit(NULL);
    }
    CHECK(pthread_create(&thread, NULL, allocates, NULL) == 0);
    /* In the midst of it; the alarm bounds the wait. */
    while (__atomic_load_n(&allocated, __ATOMIC_RELAXED) < 100)
        sched_yield();
    if (strcmp(way, "exit") == 0)
        exit(7);
    if (strcmp(way, "_exit") == 0)
        _exit(8);
    if (strcmp(way, "quick_exit") == 0)
        quick_exit(9);
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(way, "exec") == 0) {
        argv[1] = "return";
        execv("/proc/self/exe", argv);
    }
    if (strcmp(way, "thread") == 0) {
        CHECK(pthread_create(&thread, NULL, exits, NULL) == 0);
        pthread_join(thread, NULL);
    }
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    alarm(100);
    kept = must_malloc(50);
    CHECK(atexit(during_exit) == 0);
    CHECK(at_quick_exit(during_quick_exit) == 0);
    return ends(argv[1], argv);
}
