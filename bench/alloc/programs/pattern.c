/* pattern: runs one allocation pattern and says what it cost. See pattern.h for the rules (Q1 to Q4).
 *
 *   pattern --list               names, default scales, what each does
 *   pattern NAME [SCALE]         one line of JSON: operations, CPU ns, ns per operation, VmHWM, whose malloc
 *
 * The CPU time is CLOCK_PROCESS_CPUTIME_ID around the work alone; the peak is the whole process's. `malloc` names
 * the file that the program's malloc comes from, so that a preload that did not take is seen.
 */
#define _GNU_SOURCE
#include "pattern.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void die(const char *what) {
    ssize_t ignored = write(2, what, strlen(what));
    ignored += write(2, "\n", 1);
    (void)ignored;
    _exit(3);
}

void *harness_map(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) die("pattern: no memory for the harness");
    return at;
}

/* Each thread counts from a place of its own (run_workers), so that no two of them stamp alike. */
static __thread uint32_t serial;

static inline uint32_t mark_of(block_t block) { return block.serial * 0x9e3779b1u ^ (uint32_t)(uintptr_t)block.at; }

void stamp(block_t block) {
    uint32_t mark = mark_of(block);
    if (block.bytes >= 8) {
        memcpy(block.at, &mark, 4);
        memcpy(block.at + block.bytes - 4, &mark, 4);
    } else if (block.bytes) {
        block.at[0] = (unsigned char)mark;
        block.at[block.bytes - 1] = (unsigned char)mark;
    }
}

void check(block_t block) {
    uint32_t mark = mark_of(block), first, last;
    if (block.bytes >= 8) {
        memcpy(&first, block.at, 4);
        memcpy(&last, block.at + block.bytes - 4, 4);
        if (first != mark || last != mark) die("pattern: a block's content has changed");
    } else if (block.bytes && (block.at[0] != (unsigned char)mark || block.at[block.bytes - 1] != (unsigned char)mark)) {
        die("pattern: a block's content has changed");
    }
}

block_t take(size_t bytes) {
    block_t block = {malloc(bytes), (uint32_t)bytes, ++serial};
    if (!block.at) die("pattern: malloc returned null");
    stamp(block);
    return block;
}

void give(block_t block) {
    if (!block.at) return;
    check(block);
    free(block.at);
}

typedef struct {
    void *(*body)(void *);
    worker_t *worker;
} launch_t;

static void *launch(void *given) {
    launch_t *self = given;
    serial = (uint32_t)rng_next(&(rng_t){self->worker->rng.state});
    return self->body(self->worker);
}

uint64_t run_workers(int threads, uint64_t scale, uint64_t seed, void *shared, void *(*body)(void *)) {
    static worker_t workers[16];
    static launch_t launches[16];
    pthread_t ids[16];
    if (threads > 16) die("pattern: too many threads");
    for (int i = 0; i < threads; i++) {
        workers[i] = (worker_t){i, threads, scale, {seed + (uint64_t)i * 7919}, 0, shared};
        launches[i] = (launch_t){body, &workers[i]};
        if (pthread_create(&ids[i], NULL, launch, &launches[i])) die("pattern: cannot start a thread");
    }
    uint64_t ops = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        ops += workers[i].ops;
    }
    return ops;
}

queue_t *queue_new(void) {
    queue_t *queue = harness_map(sizeof *queue);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    return queue;
}

void queue_put(queue_t *queue, const block_t *batch) {
    pthread_mutex_lock(&queue->lock);
    while (queue->put - queue->got == QUEUE) pthread_cond_wait(&queue->changed, &queue->lock);
    memcpy(queue->batches[queue->put++ % QUEUE], batch, sizeof queue->batches[0]);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

int queue_get(queue_t *queue, block_t *batch) {
    pthread_mutex_lock(&queue->lock);
    while (queue->put == queue->got && !queue->closed) pthread_cond_wait(&queue->changed, &queue->lock);
    int have = queue->put != queue->got;
    if (have) {
        memcpy(batch, queue->batches[queue->got++ % QUEUE], sizeof queue->batches[0]);
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
    return have;
}

void queue_close(queue_t *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->closed = 1;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

/* Those of one thread first, the hidden ones last. */
enum { OF_ONE_THREAD = 2, LISTED = 4, GROUPS };
static const pattern_t *const groups[GROUPS] = {single_patterns, longer_patterns, thread_patterns, handed_patterns, hidden_patterns};

static const pattern_t *find(const char *name) {
    for (size_t g = 0; g < GROUPS; g++)
        for (const pattern_t *p = groups[g]; p->name; p++)
            if (!strcmp(p->name, name)) return p;
    return NULL;
}

static int list(void) {
    for (size_t g = 0; g < LISTED; g++)
        for (const pattern_t *p = groups[g]; p->name; p++)
            printf("%s\t%d\t%llu\t%s\n", p->name, g >= OF_ONE_THREAD, (unsigned long long)p->scale, p->what);
    return 0;
}

/* The kernel's high-water mark: getrusage would carry that of the process that started this one. */
static long peak_kb(void) {
    char line[256];
    long kb = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld", &kb) == 1) break;
    if (file) fclose(file);
    return kb;
}

static long long now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--list")) return list();
    const pattern_t *pattern = argc > 1 ? find(argv[1]) : NULL;
    if (!pattern || argc > 3) {
        fprintf(stderr, "usage: pattern --list | pattern NAME [SCALE]\n");
        return 2;
    }
    uint64_t scale = argc > 2 ? strtoull(argv[2], NULL, 10) : pattern->scale;
    if (!scale) {
        fprintf(stderr, "pattern: SCALE must be a number above 0\n");
        return 2;
    }
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    long long cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);
    uint64_t ops = pattern->run(scale);
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = now_ns(CLOCK_MONOTONIC) - wall;
    getrusage(RUSAGE_SELF, &after);
    Dl_info info = {0};
    dladdr((void *)malloc, &info);
    printf("{\"pattern\": \"%s\", \"scale\": %llu, \"ops\": %llu, \"cpu_ns\": %lld, \"wall_ns\": %lld, "
           "\"ns_per_op\": %.3f, \"faults\": %ld, \"peak_kb\": %ld, \"malloc\": \"%s\"}\n",
           pattern->name, (unsigned long long)scale, (unsigned long long)ops, cpu, wall, (double)cpu / (double)ops,
           after.ru_minflt - before.ru_minflt, peak_kb(), info.dli_fname ? info.dli_fname : "?");
    return 0;
}
