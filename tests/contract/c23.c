/*
 * c23.c: free_sized and free_aligned_sized, which glibc 2.36 does not have, and cfree and the emacs pair,
 * which it has only for programs linked long ago. Found by name at run time.
 */
#include "check.h"

#include <dlfcn.h>

static void *function(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found == NULL) {
        say("%s: not here\n", name);
        _exit(0);
    }
    return found;
}

int main(void)
{
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))(uintptr_t)function("free_sized");
    void (*free_aligned_sized)(void *, size_t, size_t) =
        (void (*)(void *, size_t, size_t))(uintptr_t)function("free_aligned_sized");
    void (*cfree)(void *) = (void (*)(void *))(uintptr_t)function("cfree");
    void *(*get_state)(void) = (void *(*)(void))(uintptr_t)function("malloc_get_state");
    int (*set_state)(void *) = (int (*)(void *))(uintptr_t)function("malloc_set_state");
    for (size_t size = 0; size < 100000; size = size * 5 / 4 + 1) {
        free_sized(malloc(size), size);
        free_aligned_sized(aligned_alloc(128, size), 128, size);
        cfree(malloc(size));
    }
    free_sized(NULL, 0);
    free_aligned_sized(NULL, 16, 0);
    errno = 0;
    CHECK(get_state() == NULL && errno == ENOSYS);
    CHECK(set_state(NULL) == -1);
    say("c23 ok\n");
    return 0;
}
