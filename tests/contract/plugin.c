/*
 * plugin.c: the libraries that loading.c loads. See there.
 */
#include "check.h"

#ifdef DYNAMIC
static __thread char storage[64 << 10] __attribute__((tls_model("global-dynamic")));
#else
static __thread char storage[256] __attribute__((tls_model("initial-exec")));
#endif
static void *kept;

__attribute__((constructor)) static void loaded(void) { kept = must_malloc(3000); }

__attribute__((destructor)) static void unloaded(void) { free(kept); }

void *plugin_make(int round)
{
    CHECK(storage[200] == 0);
    storage[200] = (char)(round + 1);
    char *block = must_malloc(500);
    memset(block, storage[200], 500);
    return block;
}
