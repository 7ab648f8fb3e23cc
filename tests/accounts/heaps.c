/*
 * heaps.c: heaps of one's own, from C.
 *
 *   whole   what a heap holds, blocks freed by both names, the rest destroyed; figures as before
 *   forks   four threads use a heap while the process forks 60 times; each child uses it and destroys it
 *   stale   a heap is used after it was destroyed: said, and the end (or null, where that was chosen)
 *   wrong   a heap is given another heap's block
 */
#include "names.h"

#include <pthread.h>
#include <sys/wait.h>

static skinflint_heap *heap;
static volatile int stop;

static void whole(void)
{
    long before = figure("usable_bytes");
    heap = CALL(skinflint_heap_create)();
    CHECK(heap);
    static char *blocks[3000];
    size_t bytes = 0;
    for (int i = 0; i < 3000; i++) {
        blocks[i] = CALL(skinflint_heap_malloc)(heap, i % 100 ? i : i * 50);
        CHECK(blocks[i]);
        bytes += CALL(skinflint_heap_usable)(heap, blocks[i]);
    }
    CHECK(CALL(skinflint_heap_bytes)(heap) == bytes);
    CHECK(CALL(skinflint_heap_blocks)(heap) == 3000);
    CHECK(figure("tenants") == 1 && figure("tenant_blocks") == 3000);
    for (int i = 0; i < 3000; i += 2)
        if (i % 4)
            free(blocks[i]);
        else
            CALL(skinflint_heap_free)(heap, blocks[i]);
    CHECK(CALL(skinflint_heap_blocks)(heap) == 1500);
    errno = 0;
    CHECK(CALL(skinflint_heap_memalign)(heap, 24, 8) == NULL && errno == EINVAL);
    CHECK((size_t)CALL(skinflint_heap_memalign)(heap, 1 << 16, 8) % (1 << 16) == 0);
    char *zero = CALL(skinflint_heap_calloc)(heap, 1000, 7);
    for (int i = 0; i < 7000; i++)
        CHECK(zero[i] == 0);
    zero = CALL(skinflint_heap_realloc)(heap, zero, 1 << 20);
    CHECK(zero && zero[6999] == 0);
    CALL(skinflint_heap_destroy)(heap);
    CALL(skinflint_heap_destroy)(NULL);
    CHECK(figure("tenants") == 0 && figure("usable_bytes") <= before + 4096);
}

static void *use(void *seed)
{
    unsigned at = (unsigned)(size_t)seed;
    while (!stop) {
        at = at * 1664525 + 1013904223;
        size_t n = 1 + at % (at % 50 ? 3000 : 100000);
        char *block = CALL(skinflint_heap_malloc)(heap, n);
        CHECK(block);
        block[0] = block[n - 1] = 1;
        if (at & 1 << 20)
            free(block);
        else
            CALL(skinflint_heap_free)(heap, block);
    }
    return NULL;
}

static void forks(void)
{
    heap = CALL(skinflint_heap_create)();
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, use, (void *)(i + 1)) == 0);
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            for (int n = 1; n < 500; n++)
                CHECK(CALL(skinflint_heap_malloc)(heap, n * 100));
            CALL(skinflint_heap_destroy)(heap);
            CHECK(figure("tenants") == 0);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(CALL(skinflint_heap_blocks)(heap) == 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "whole"))
        whole();
    else if (!strcmp(what, "forks"))
        forks();
    else if (!strcmp(what, "stale")) {
        heap = CALL(skinflint_heap_create)();
        CALL(skinflint_heap_destroy)(heap);
        CHECK(CALL(skinflint_heap_malloc)(heap, 10) == NULL);
    } else if (!strcmp(what, "wrong")) {
        heap = CALL(skinflint_heap_create)();
        CALL(skinflint_heap_free)(heap, malloc(10));
    } else
        return 97;
    puts("ok");
    return 0;
}
