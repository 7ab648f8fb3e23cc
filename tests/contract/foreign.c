/*
 * foreign.c CASE: a pointer that is no live block is freed. Every case ends in SIGABRT, as it does under
 * glibc; the last line on stdout is "freeing".
 *
 *   static     an array of the program's
 *   stack      a local array
 *   map        a page that the program mapped itself
 *   middle     the inside of a small block
 *   large      the inside of a large one
 *   double     a small block, twice, with another freed between
 *   double-large   a large block, twice
 *   remote     a small block, twice, by two other threads
 *   realloc    a local array, by realloc
 *
 * glibc 2.36 does not see all of them: a block inside a block is freed as if it were one, and a large one
 * freed twice is a fault. It is not asked.
 */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>

static void (*volatile call_free)(void *) = free;
static void *(*volatile call_realloc)(void *, size_t) = realloc;
static char statically[256] __attribute__((aligned(64)));

static void *frees(void *block)
{
    call_free(block);
    return NULL;
}

static void by_another_thread(void *block)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, frees, block) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *what = argv[1];
    char local[256] __attribute__((aligned(64)));
    char *block = must_malloc(100), *other = must_malloc(100), *large = must_malloc(1 << 20);
    memset(block, 1, 100);
    memset(large, 1, 1 << 20);
    memset(local, 0, sizeof local);
    say("freeing\n");
    if (strcmp(what, "static") == 0)
        call_free(statically + 64);
    else if (strcmp(what, "stack") == 0)
        call_free(local + 64);
    else if (strcmp(what, "map") == 0)
        call_free(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    else if (strcmp(what, "middle") == 0)
        call_free(block + 16);
    else if (strcmp(what, "large") == 0)
        call_free(large + 4096);
    else if (strcmp(what, "double") == 0) {
        call_free(block);
        call_free(other);
        call_free(block);
    } else if (strcmp(what, "double-large") == 0) {
        call_free(large);
        call_free(large);
    } else if (strcmp(what, "remote") == 0) {
        by_another_thread(block);
        by_another_thread(block);
    } else if (strcmp(what, "realloc") == 0)
        call_realloc(local + 64, 1000);
    say("still here\n");
    return 0;
}
