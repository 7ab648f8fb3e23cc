/*
 * names.h: the allocator's names, found at run time, and what to do where they are not.
 *
 *   CALL(skinflint_heap_create)()
 *
 * Not here: the names (skinflint.h).
 */
#ifndef NAMES_H
#define NAMES_H

#define _GNU_SOURCE
#include "skinflint.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *found(const char *name)
{
    void *it = dlsym(RTLD_DEFAULT, name);
    if (!it) {
        fprintf(stderr, "not on libskinflint.so: no %s\n", name);
        _exit(99);
    }
    return it;
}

#define CALL(name) ((__typeof__(&name))found(#name))

#define CHECK(what)                                                             \
    do {                                                                        \
        if (!(what)) {                                                          \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);  \
            _exit(98);                                                          \
        }                                                                       \
    } while (0)

/* A number of the figures, by the last of the names on the way: unique names only. */
static __attribute__((unused)) long figure(const char *name)
{
    static char text[65536];
    size_t length = CALL(skinflint_stats_json)(text, sizeof text);
    CHECK(length > 0 && length < sizeof text);
    CHECK(strstr(text, "\"balanced\":true"));
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    char *at = strstr(text, key);
    CHECK(at);
    return atol(at + strlen(key));
}

#endif
