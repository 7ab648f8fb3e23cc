/*
 * dl.c: dlopen and dlclose of two plugins in turn, 200 times, so that the code of one comes to lie
 * where the code of the other was.
 *
 * Each round: the plugin's constructor takes 501 bytes (freed by its destructor), plugin_allocate
 * (in odd rounds plugin_allocate_second) takes 503, kept in rounds 0, 1, 10, 11, 20 ..., else freed.
 *   200 x 501, none live; 100 x 503 by each, 20 live by each.
 * Then libplugin.so is opened and stays: 1 x 501 and 1 x 509. The loader runs its destructor when the
 * program returns from main, so that at the very end 509 is live and 501 is not.
 * Beside those: the loader's own blocks, as many as the C library likes.
 */
#include "check.h"

#include <dlfcn.h>

typedef void *allocate_fn(size_t);

static char directory[4096];

static void *open_plugin(int second, allocate_fn **allocate)
{
    char path[4096 + 32];
    snprintf(path, sizeof path, "%s/%s", directory, second ? "libplugin2.so" : "libplugin.so");
    void *handle = dlopen(path, second ? RTLD_NOW : RTLD_LAZY);
    CHECK(handle != NULL);
    *allocate =
        (allocate_fn *)dlsym(handle, second ? "plugin_allocate_second" : "plugin_allocate");
    CHECK(*allocate != NULL);
    return handle;
}

int main(void)
{
    ssize_t length = readlink("/proc/self/exe", directory, sizeof directory - 1);
    CHECK(length > 0);
    *strrchr(directory, '/') = 0;
    uintptr_t last = 0;
    int near = 0, kept = 0;
    for (int round = 0; round < 200; round++) {
        allocate_fn *allocate;
        void *handle = open_plugin(round % 2, &allocate);
        uintptr_t here = (uintptr_t)allocate >> 16;
        near += here == last;
        last = here;
        void *block = allocate(503);
        if (round % 10 < 2)
            kept++;
        else
            free(block);
        CHECK(dlclose(handle) == 0);
    }
    allocate_fn *allocate;
    CHECK(open_plugin(0, &allocate) != NULL);
    CHECK(allocate(509) != NULL);
    CHECK(near > 0); /* the reason for this program */
    say("dl: 200 rounds, %d blocks kept, addresses reused\n", kept);
    return 0;
}
