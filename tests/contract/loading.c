/*
 * loading.c: libraries that come and go 200 times, with thread-local storage of both kinds.
 *
 * One plug-in (plugin.c) has 256 bytes of initial-exec storage, taken from the little that glibc keeps
 * for late libraries; the other has 64 KiB of dynamic storage, which each thread that touches it
 * allocates. Their constructors and destructors allocate. A block of their making is freed after they are
 * gone; the loader's own memory of each round goes through our free.
 */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>

enum { ROUNDS = 200 };

static void *(*make)(int);

static void *in_thread(void *argument)
{
    return make((int)(uintptr_t)argument);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    alarm(280);
    for (int round = 0; round < ROUNDS; round++) {
        void *library = dlopen(argv[1 + round / 2 % 2], round % 2 ? RTLD_NOW : RTLD_LAZY);
        if (library == NULL) {
            say("round %d: %s\n", round, dlerror());
            return 1;
        }
        make = (void *(*)(int))(uintptr_t)dlsym(library, "plugin_make");
        CHECK(make != NULL);
        CHECK(dlsym(library, "not_there") == NULL);
        CHECK(dlerror() != NULL);
        char *block = make(round);
        pthread_t thread;
        void *other;
        CHECK(pthread_create(&thread, NULL, in_thread, (void *)(uintptr_t)round) == 0);
        CHECK(pthread_join(thread, &other) == 0);
        CHECK(dlclose(library) == 0);
        CHECK(block[499] == (char)(round + 1) && ((char *)other)[0] == (char)(round + 1));
        free(block);
        free(other);
        CHECK(dlopen("no-such-library.so", RTLD_NOW) == NULL);
        CHECK(dlerror() != NULL);
    }
    say("loading ok\n");
    return 0;
}
