/*
 * exits.c: every way to end, after exactly 1000 blocks of 89 bytes (500 freed, 500 live).
 *
 *   exits [return|exit|_exit|quick_exit|abort|segv|kill]     default: return
 *
 * With "exit" an atexit handler takes 1 more block of 83 and frees it, with "quick_exit" an
 * at_quick_exit handler does. Its one line is written before the end.
 */
#include "check.h"

#include <signal.h>
#include <sys/resource.h>

NOINLINE static void at_the_end(void)
{
    void *block = must_malloc(83);
    free(block);
}

NOINLINE static void allocate(void)
{
    void *blocks[1000];
    for (int i = 0; i < 1000; i++)
        blocks[i] = must_malloc(89);
    for (int i = 0; i < 1000; i += 2)
        free(blocks[i]);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    const struct rlimit no_core = {0, 0};
    CHECK(setrlimit(RLIMIT_CORE, &no_core) == 0);
    allocate();
    say("exits: %s\n", how);
    if (strcmp(how, "return") == 0)
        return 0;
    if (strcmp(how, "exit") == 0) {
        CHECK(atexit(at_the_end) == 0);
        exit(7);
    }
    if (strcmp(how, "_exit") == 0)
        _exit(8);
    if (strcmp(how, "quick_exit") == 0) {
        CHECK(at_quick_exit(at_the_end) == 0);
        quick_exit(9);
    }
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "segv") == 0) {
        volatile int *nowhere = NULL;
        OPAQUE(nowhere);
        *nowhere = 1;
    }
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    say("exits: return, exit, _exit, quick_exit, abort, segv or kill; not %s\n", how);
    return 2;
}
