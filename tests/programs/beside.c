/*
 * beside.c: memory that the allocator gives out past whoever stands in front of malloc.
 *
 * `beside unseen` takes 200 x 60,007 bytes with malloc and 400 x 60,007 by another of the allocator's names (glibc's
 * __libc_malloc, jemalloc's mallocx), and keeps all: 22.9 MiB of 34.3 are seen by nobody. `beside released` takes the
 * 600 with malloc and gives 400 back by the other names. `beside even` takes and keeps the 600 with malloc, and so does
 * a child that it forks while two threads hold blocks in their caches. It ends by return from main. `beside brk` takes
 * 24 MiB by a system call of its own for brk instead, and writes to all of it. `beside sbrk` takes them by sbrk, between
 * blocks of the allocator's, which then count as in use to glibc. `killed` after either: SIGKILL ends it, so that the allocator is
 * never asked; the mark before has waited until the collector has looked at all of the memory.
 */
#include "check.h"
#include "skinflint.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

enum { SEEN = 200, OTHER = 400, SIZE = 60007 };

static void *(*take)(size_t);
static void *(*take_flags)(size_t, int);
static void (*give)(void *);
static void (*give_flags)(void *, int);
static void *kept[SEEN + OTHER];

NOINLINE static void *other(size_t size)
{
    void *block = take_flags != NULL ? take_flags(size, 0) : take(size);
    CHECK(block != NULL);
    memset(block, 1, size);
    return block;
}

static long raw_brk(void *end)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(12L), "D"(end) : "rcx", "r11", "memory");
    return result;
}

NOINLINE static void own(void)
{
    enum { BYTES = 24 << 20 };
    /* libc's sbrk would not know of it: it takes nothing more. */
    char *more = sbrk(0);
    long end = raw_brk(more + BYTES);
    CHECK(end == (long)(more + BYTES));
    memset(more, 1, BYTES);
}

NOINLINE static void own_by_sbrk(void)
{
    enum { BYTES = 24 << 20 };
    char *more = sbrk(BYTES);
    CHECK(more != (void *)-1);
    memset(more, 1, BYTES);
}

NOINLINE static void back(void *block)
{
    if (give_flags != NULL)
        give_flags(block, 0);
    else
        give(block);
}

static void *caching(void *argument)
{
    for (size_t size = 24; size <= 1032; size += 16) {
        void *blocks[7];
        for (int i = 0; i < 7; i++)
            blocks[i] = must_malloc(size);
        for (int i = 0; i < 7; i++)
            free(blocks[i]);
    }
    pthread_barrier_wait(argument);
    /* Still there, with what it keeps, while the process forks and ends. */
    pause();
    return NULL;
}

NOINLINE static void even(void)
{
    pthread_barrier_t full;
    pthread_t threads[2];
    CHECK(pthread_barrier_init(&full, NULL, 3) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, caching, &full) == 0);
    pthread_barrier_wait(&full);
    pid_t child = fork();
    CHECK(child >= 0);
    for (int i = 0; i < SEEN + OTHER; i++)
        kept[i] = must_malloc(SIZE);
    int status = 0;
    CHECK(child == 0 || (waitpid(child, &status, 0) == child && status == 0));
    if (child != 0)
        say("beside: even\n");
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "even";
    *(void **)&take_flags = dlsym(RTLD_DEFAULT, "mallocx");
    *(void **)&give_flags = dlsym(RTLD_DEFAULT, "dallocx");
    *(void **)&take = dlsym(RTLD_DEFAULT, "__libc_malloc");
    *(void **)&give = dlsym(RTLD_DEFAULT, "__libc_free");
    CHECK(take != NULL && give != NULL);
    if (strcmp(what, "even") == 0) {
        even();
        return 0;
    }
    int is_killed = argc > 2;
    if (strcmp(what, "brk") == 0) {
        kept[0] = must_malloc(SIZE);
        own();
    }
    int is_sbrk = strcmp(what, "sbrk") == 0;
    if (is_sbrk) {
        kept[0] = must_malloc(SIZE);
        own_by_sbrk();
        for (int i = 1; i < SEEN; i++)
            kept[i] = must_malloc(SIZE);
    }
    int is_brk = kept[0] != NULL;
    int is_released = strcmp(what, "released") == 0;
    for (int i = 0; i < SEEN && !is_brk; i++)
        kept[i] = must_malloc(SIZE);
    for (int i = 0; i < OTHER && !is_brk; i++)
        kept[SEEN + i] = is_released ? must_malloc(SIZE) : other(SIZE);
    for (int i = 0; i < OTHER && is_released; i++)
        back(kept[SEEN + i]);
    say("beside: %s\n", what);
    if (is_killed) {
        skinflint_mark("written");
        raise(SIGKILL);
    }
    return 0;
}
