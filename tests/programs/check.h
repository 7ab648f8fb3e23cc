/*
 * check.h: what every test program needs and no allocation: output by write(2), checks, and a way
 * to keep the compiler from removing a malloc that nobody reads.
 *
 * C1  Nothing here allocates: no stdio. A program's blocks are the ones that its comment lists.
 * C2  A failed check prints the line and exits with 1 at once.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

/* The compiler must assume that somebody looks at `p`. */
#define OPAQUE(p) __asm__ volatile("" : "+r"(p) : : "memory")

/* Ends a function that calls another last: a tail call would take it off the stack. */
#define NO_TAIL_CALL() __asm__ volatile("")

__attribute__((format(printf, 1, 2), unused)) static void say(const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof line)
        length = sizeof line;
    for (int done = 0; done < length;) {
        ssize_t n = write(1, line + done, (size_t)(length - done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(3);
        done += (int)n;
    }
}

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            say("%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            _exit(1);                                                                     \
        }                                                                                 \
    } while (0)

/* malloc that must succeed; inlined, so that the stack shows the caller. */
__attribute__((always_inline, unused)) static inline void *must_malloc(size_t size)
{
    void *block = malloc(size);
    OPAQUE(block);
    CHECK(block != NULL);
    return block;
}

#endif
