/*
 * deep.c: a plug-in opened with RTLD_DEEPBIND, whose names are looked up in the C library before anybody who was
 * preloaded: by a path, and with the argument "name" by a bare name (found by LD_LIBRARY_PATH).
 *
 * The plug-in keeps 300 blocks of 1,009 bytes and frees 100 of them: 300 over the run, 200 live. It frees 50 copies
 * of 67 bytes that the program made, and the program frees 50 of 71 bytes that the plug-in made: 50 and 50, none
 * live. One block of 83 bytes, taken by its constructor before anybody could know the plug-in, is resized to 89 and
 * freed by the program: whoever recorded need not have seen its beginning.
 *
 * With the argument "apart" no block passes between the two: with another allocator preloaded that would be a fault of
 * the program's own.
 */
#include "check.h"

#include <dlfcn.h>

int main(int argc, char **argv)
{
    char path[4096 + 32] = "";
    if (argc > 1 && !strcmp(argv[1], "name")) {
        strcpy(path, "libdeep.so");
    } else {
        ssize_t length = readlink("/proc/self/exe", path, 4096);
        CHECK(length > 0);
        strcpy(strrchr(path, '/'), "/libdeep.so");
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    CHECK(handle != NULL);
    int (*keep)(void) = (int (*)(void))dlsym(handle, "deep_keep");
    void (*give_back)(char *) = (void (*)(char *))dlsym(handle, "deep_free");
    char *(*make)(void) = (char *(*)(void))dlsym(handle, "deep_make");
    char *(*first)(void) = (char *(*)(void))dlsym(handle, "deep_first");
    CHECK(keep != NULL && give_back != NULL && make != NULL && first != NULL);
    CHECK(dlsym(handle, "deep_no_such_name") == NULL);
    CHECK(keep() == 200);
    if (argc > 1 && !strcmp(argv[1], "apart")) {
        free(must_malloc(67));
        say("deep: 200 blocks kept\n");
        return 0;
    }
    for (int i = 0; i < 50; i++) {
        char *copy = must_malloc(67);
        memset(copy, 'x', 67);
        give_back(copy);
        char *made = make();
        CHECK(made[70] == 'y');
        free(made);
    }
    char *early = realloc(first(), 89);
    CHECK(early != NULL && !memcmp(early, "first", 6));
    free(early);
    say("deep: 200 blocks kept\n");
    return 0;
}
