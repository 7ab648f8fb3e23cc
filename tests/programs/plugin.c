/*
 * plugin.c: libplugin.so and libplugin2.so, loaded and unloaded by dl.c. Allocates in its constructor and in a function; frees the
 * constructor's block when it is unloaded.
 */
#include "check.h"

static void *at_load;

__attribute__((constructor)) static void loaded(void)
{
    at_load = must_malloc(501);
}

__attribute__((destructor)) static void unloaded(void)
{
    free(at_load);
}

/* libplugin2.so is the same with another name, which shows whose code an address was. */
#ifdef SECOND
#define plugin_allocate plugin_allocate_second
#endif

NOINLINE void *plugin_allocate(size_t size);
NOINLINE void *plugin_allocate(size_t size)
{
    void *block = must_malloc(size);
    NO_TAIL_CALL();
    return block;
}
