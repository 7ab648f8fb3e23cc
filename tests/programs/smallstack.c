/*
 * smallstack.c: allocations on the smallest stacks that threads may have, and near a guard page.
 *
 * 20 threads one after the other with PTHREAD_STACK_MIN bytes of stack (16384, TLS included), each
 * 100 x 43, all freed but the last: 2000 x 43, 20 live. Of its stack each thread leaves 4 KiB and
 * uses up the rest, so whoever needs more than that beneath malloc meets the guard page.
 * Main takes 1 x 41 and frees it first: the loader saves all vector registers when it binds a
 * function lazily, which alone is 3 KiB and more. Beside those: what pthread_getattr_np takes.
 */
#include "check.h"

#include <limits.h>
#include <pthread.h>

enum { LEFT = 4096 };

static void *kept[20];

NOINLINE static void allocate(void **slot)
{
    for (int i = 0; i < 100; i++) {
        void *block = must_malloc(43);
        if (i < 99)
            free(block);
        else
            *slot = block;
    }
}

NOINLINE static void *thread(void *slot)
{
    pthread_attr_t attributes;
    void *lowest;
    size_t size;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &lowest, &size) == 0);
    pthread_attr_destroy(&attributes);
    char here;
    char *top = &here;
    OPAQUE(top);
    ptrdiff_t room = top - (char *)lowest;
    if (room > LEFT + 512) {
        volatile char *used = __builtin_alloca((size_t)(room - LEFT - 512));
        used[0] = 1;
        allocate(slot);
        used[0] = 2;
    } else {
        allocate(slot);
    }
    return NULL;
}

int main(void)
{
    void *first = must_malloc(41);
    free(first);
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) == 0);
    for (int i = 0; i < 20; i++) {
        pthread_t id;
        CHECK(pthread_create(&id, &attributes, thread, &kept[i]) == 0);
        CHECK(pthread_join(id, NULL) == 0);
        CHECK(kept[i] != NULL);
    }
    say("smallstack: 20 threads\n");
    return 0;
}
