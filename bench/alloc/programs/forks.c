/* forks: 300 children, one after the other, of a process whose four threads never stop taking and giving back.
 *
 *   four threads ──► malloc, free, for ever          main ──► fork ──► child: malloc, free, _exit(0)   × N
 *
 *   forks [N]     one line of JSON: CPU and wall of the whole, of this process and its children; 1 if a child failed
 *
 * The threads take a set number of steps between two forks, so that the work is the same however slow a fork is.
 * What is alive when a fork comes (about 8 MiB) is what the child's page tables carry.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, SLOTS = 4000, STEPS = 2000 };
static _Atomic int round_now, arrived, stopped;

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* The steps of one round go on while main forks: the fork meets threads in the middle of malloc. */
static void *churn(void *given) {
    uint64_t state = (uintptr_t)given + 77;
    void **slots = calloc(SLOTS, sizeof *slots);
    for (int seen = 0; slots;) {
        while (atomic_load(&round_now) == seen && !atomic_load(&stopped)) usleep(50);
        if (atomic_load(&stopped)) break;
        seen++;
        for (int i = 0; i < STEPS; i++) {
            size_t slot = next(&state) % SLOTS, bytes = 16 + next(&state) % 1000;
            free(slots[slot]);
            slots[slot] = malloc(bytes);
            if (slots[slot]) memset(slots[slot], 1, bytes);
        }
        atomic_fetch_add(&arrived, 1);
    }
    free(slots);
    return NULL;
}

/* Ends by itself if it hangs, so that none is left behind. */
static int child(void) {
    alarm(10);
    void *kept[200];
    for (int i = 0; i < 200; i++)
        if (!(kept[i] = malloc(64 + (size_t)i * 7))) return 1;
    for (int i = 0; i < 200; i++) free(kept[i]);
    return 0;
}

/* A child that hangs in malloc is what this looks for: its alarm ends it with a status that is not 0. */
static int reap(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return 1;
    return status != 0;
}

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 300;
    pthread_t ids[THREADS];
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (intptr_t t = 0; t < THREADS; t++)
        if (pthread_create(&ids[t], NULL, churn, (void *)t)) return 2;
    int bad = 0;
    for (int i = 0; i < forks && !bad; i++) {
        atomic_store(&arrived, 0);
        atomic_fetch_add(&round_now, 1);
        pid_t pid = fork();
        if (pid < 0) return 2;
        if (pid == 0) _exit(child());
        bad |= reap(pid);
        while (atomic_load(&arrived) < THREADS) usleep(50);
    }
    atomic_store(&stopped, 1);
    for (int t = 0; t < THREADS; t++) pthread_join(ids[t], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    struct rusage own, children;
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    printf("{\"forks\": %d, \"bad\": %d, \"cpu\": %.6f, \"wall\": %.6f}\n", forks, bad,
           seconds(own.ru_utime) + seconds(own.ru_stime) + seconds(children.ru_utime) + seconds(children.ru_stime),
           (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9);
    return bad;
}
