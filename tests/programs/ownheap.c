/*
 * ownheap.c: a program that exports an allocator of its own, as rustc, chromium and firefox do: it is found before
 * everybody who was preloaded.
 *
 * Its lock is no recursive one, and is held while the allocator grows by sbrk and mmap. So whoever stands in front of
 * those two may not allocate, in whatever words: the second allocation of the same thread waits for the first, for
 * ever. The first allocation is made by a constructor, before anybody's but the C library's.
 *
 * A child of fork takes what it needs in a handler that holds the lock, and then by itself: its first calls that
 * anybody sees are those two.
 *
 * reallocarray is not among its functions: the C library's calls realloc by its name, which is the program's.
 */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

static volatile int held;
static char *at, *end;
static int grown, served;

static void lock(void)
{
    /* A real one would wait; this one says so and ends. */
    if (__atomic_exchange_n(&held, 1, __ATOMIC_ACQUIRE)) {
        say("ownheap: the allocator was called while it held its lock\n");
        _exit(1);
    }
}

static void unlock(void)
{
    __atomic_store_n(&held, 0, __ATOMIC_RELEASE);
}

static void grow(size_t bytes)
{
    size_t room = bytes > 1 << 16 ? bytes : 1 << 16;
    char *more = grown++ % 2 ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                             : sbrk((intptr_t)room);
    CHECK(more != (void *)-1);
    at = more;
    end = more + room;
}

void *malloc(size_t bytes)
{
    bytes = (bytes + 31) & ~(size_t)15;
    lock();
    if (bytes > (size_t)(end - at))
        grow(bytes);
    size_t *block = (size_t *)(void *)at;
    at += bytes;
    block[0] = bytes - 16;
    block[1] = 0x0e17eea9;
    served++;
    unlock();
    return block + 2;
}

void free(void *block)
{
    CHECK(block == NULL || ((size_t *)block)[-1] == 0x0e17eea9);
}

void *calloc(size_t count, size_t each)
{
    void *block = malloc(count * each);
    return memset(block, 0, count * each);
}

void *realloc(void *old, size_t bytes)
{
    if (old == NULL)
        return malloc(bytes);
    CHECK(((size_t *)old)[-1] == 0x0e17eea9);
    size_t have = ((size_t *)old)[-2];
    char *block = malloc(bytes);
    return memcpy(block, old, have < bytes ? have : bytes);
}

__attribute__((constructor)) static void first(void)
{
    OPAQUE(at);
    free(malloc(10));
}

static void in_child(void)
{
    lock();
    grow(1 << 20);
    unlock();
}

static void forks(void)
{
    CHECK(pthread_atfork(NULL, NULL, in_child) == 0);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 4; i++)
            memset(must_malloc(1 << 20), i, 1 << 20);
        exit(42);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

int main(void)
{
    char *name = strdup("a copy by the C library");
    for (int i = 0; i < 2000; i++) {
        char *block = must_malloc(500);
        memset(block, i, 500);
        free(block);
    }
    name = reallocarray(name, 100, 40);
    OPAQUE(name);
    CHECK(name != NULL && !strcmp(name, "a copy by the C library"));
    CHECK(((size_t *)(void *)name)[-1] == 0x0e17eea9);
    CHECK(served > 2000 && grown > 4);
    forks();
    say("ownheap: served by itself\n");
    return 0;
}
