/*
 * crew.c: one thread for each processor, and one for each node.
 *
 *   crew cpus N     N threads, each on a processor of its own, hand blocks round; contents are checked at each free
 *   crew serves 1   it is libskinflint.so whose malloc is called
 *   crew nodes N    a thread on each of N nodes in turn takes what the one before gave back: on which node does it lie?
 *
 * The threads of `nodes` stay until all have had their turn, so none inherits the heap of another. Exit 0: held, 1: not.
 *
 * Not here: the machine (machine.py).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 64, SLOTS = 400, STEPS = 30000, PAGE = 4096, NODE_BLOCKS = 20000, NODE_BYTES = 400, SHARE = 95 };

static int count;
static pthread_barrier_t gate;

struct block {
    uint32_t bytes, seed;
    unsigned char content[];
};

/* What each thread hands to the next one: a slot under a lock. */
static struct {
    pthread_mutex_t lock;
    struct block *block;
    long handed;
} hands[MOST];

static void die(const char *what, long number)
{
    fprintf(stderr, "crew: %s (%ld)\n", what, number);
    _exit(1);
}

static uint32_t next(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    return *seed ^= *seed << 5;
}

static struct block *made(uint32_t *seed)
{
    uint32_t of = next(seed), bytes = of % 64 ? of % 600 : of % 60000;
    struct block *block = malloc(sizeof *block + bytes);
    if (!block)
        die("no memory", bytes);
    block->bytes = bytes;
    block->seed = of;
    for (uint32_t at = 0; at < bytes; at += 7)
        block->content[at] = (unsigned char)(of + at);
    return block;
}

static void ended(struct block *block)
{
    for (uint32_t at = 0; at < block->bytes; at += 7)
        if (block->content[at] != (unsigned char)(block->seed + at))
            die("a block's content changed", block->bytes);
    free(block);
}

static void run_on(const cpu_set_t *set, long which)
{
    if (sched_setaffinity(0, sizeof *set, set))
        die("no such processor", which);
}

static void *worker(void *argument)
{
    long self = (long)argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(self, &set);
    run_on(&set, self);
    if (sched_getcpu() != self)
        die("on another processor", self);
    uint32_t seed = 7 + (uint32_t)self;
    static _Thread_local struct block *slots[SLOTS];
    pthread_barrier_wait(&gate);
    for (int step = 0; step < STEPS; step++) {
        struct block **slot = &slots[next(&seed) % SLOTS];
        if (*slot && step % 3 == 0) {
            long to = (self + 1) % count;
            pthread_mutex_lock(&hands[to].lock);
            struct block *before = hands[to].block;
            hands[to].block = *slot;
            hands[to].handed++;
            pthread_mutex_unlock(&hands[to].lock);
            *slot = before;
        }
        if (*slot)
            ended(*slot);
        *slot = made(&seed);
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i])
            ended(slots[i]);
    return NULL;
}

static void cpus(void)
{
    pthread_t threads[MOST];
    long handed = 0;
    if (sysconf(_SC_NPROCESSORS_ONLN) != count)
        die("not so many processors", sysconf(_SC_NPROCESSORS_ONLN));
    for (long i = 0; i < count; i++) {
        pthread_mutex_init(&hands[i].lock, NULL);
        pthread_create(&threads[i], NULL, worker, (void *)i);
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++) {
        handed += hands[i].handed;
        if (hands[i].block)
            ended(hands[i].block);
    }
    printf("%d threads on %d processors, %ld blocks handed on, all whole\n", count, count, handed);
}

/* The processors of a node, as the kernel lists them: "4-7". */
static void processors_of(long node, cpu_set_t *set)
{
    char path[80];
    int first, last;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%ld/cpulist", node);
    FILE *list = fopen(path, "r");
    if (!list)
        die("no such node", node);
    int read = fscanf(list, "%d-%d", &first, &last);
    fclose(list);
    if (read < 1)
        die("no processor on the node", node);
    CPU_ZERO(set);
    for (int cpu = first; cpu <= (read > 1 ? last : first); cpu++)
        CPU_SET(cpu, set);
}

static long turn;
static char *taken[NODE_BLOCKS];
static void *pages[NODE_BLOCKS];
static int nodes[NODE_BLOCKS];

/* How many in a hundred of the blocks lie on this node. */
static long share_on(long node)
{
    long own = 0;
    for (int i = 0; i < NODE_BLOCKS; i++)
        pages[i] = (void *)((uintptr_t)taken[i] & ~(uintptr_t)(PAGE - 1));
    if (syscall(SYS_move_pages, 0, (long)NODE_BLOCKS, pages, NULL, nodes, 0))
        die("the kernel does not say where pages lie", node);
    for (int i = 0; i < NODE_BLOCKS; i++)
        own += nodes[i] == node;
    return own * 100 / NODE_BLOCKS;
}

static void *settler(void *argument)
{
    long node = (long)argument;
    cpu_set_t set;
    processors_of(node, &set);
    run_on(&set, node);
    for (long round = 0; round < 3; round++) {
        for (long at = 0; at < count; at++) {
            pthread_barrier_wait(&gate);
            if (at != node)
                continue;
            for (int i = 0; i < NODE_BLOCKS; i++) {
                if (!(taken[i] = malloc(NODE_BYTES)))
                    die("no memory", i);
                memset(taken[i], 1 + (int)node, NODE_BYTES);
            }
            long share = share_on(node);
            printf("round %ld, node %ld: %ld %% of its blocks lie there\n", round, node, share);
            if (share < SHARE)
                __atomic_store_n(&turn, 1, __ATOMIC_RELAXED);
            for (int i = 0; i < NODE_BLOCKS; i++)
                free(taken[i]);
        }
    }
    pthread_barrier_wait(&gate);
    return NULL;
}

static void each_node(void)
{
    pthread_t threads[MOST];
    for (long i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, settler, (void *)i);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (turn)
        die("less than this many in a hundred", SHARE);
}

int main(int argc, char **argv)
{
    count = argc > 2 ? atoi(argv[2]) : 0;
    if (count < 1 || count > MOST)
        die("usage: crew cpus|nodes|serves N", count);
    pthread_barrier_init(&gate, NULL, (unsigned)count);
    if (!strcmp(argv[1], "serves")) {
        Dl_info info;
        if (!dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info) || !strstr(info.dli_fname, "libskinflint.so"))
            die("another malloc", 0);
    } else if (!strcmp(argv[1], "cpus"))
        cpus();
    else
        each_node();
    return 0;
}
