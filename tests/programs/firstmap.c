/*
 * firstmap.c: children of fork whose first call that is recorded is about mappings. Page: 4096 bytes.
 *
 *   parent        `inherited` maps 2048 pages and touches all
 *   first         the child maps 5120 in `fresh`, all touched               20971520 in a stack of its own
 *   deep          as first, three forks deep                                20971520, as above
 *   gone          the child unmaps the upper half of what it inherited      4194304 of 8388608 are left
 *   grown         the child grows what it inherited to 4096, all touched    16777216, by `inherited`
 *   handler       as first, in a handler of pthread_atfork                  20971520, as above
 *   vfork         vfork, and the child becomes this program with "child",
 *                 which maps as first                                       20971520, a program of its own
 *
 * Processes: 1 parent, 8 children; those of fork make no heap call. Programs take a block of 1000 first, and keep it.
 * Each child ends with 42 by exit.
 */
#include "check.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096 };

static char *old;
static int is_handled;

static char *map(size_t pages)
{
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    memset(at, 1, pages * PAGE);
    return at;
}

NOINLINE static void inherited(void)
{
    old = map(2048);
    NO_TAIL_CALL();
}

NOINLINE static void fresh(void)
{
    char *at = map(5120);
    OPAQUE(at);
}

NOINLINE static void gone(void)
{
    CHECK(munmap(old + 1024 * PAGE, 1024 * PAGE) == 0);
}

NOINLINE static void grown(void)
{
    char *at = mremap(old, 2048 * PAGE, 4096 * PAGE, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED && at[0] == 1);
    memset(at, 2, 4096 * PAGE);
}

static void await(pid_t child)
{
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void in_child(int depth, void (*work)(void))
{
    pid_t child = fork();
    if (child != 0)
        return await(child);
    if (depth > 1)
        in_child(depth - 1, work);
    else if (work != NULL)
        work();
    exit(42);
}

static void handler(void)
{
    if (is_handled)
        fresh();
}

int main(int count, char **arguments)
{
    char *block = must_malloc(1000);
    OPAQUE(block);
    if (count > 1) {
        fresh();
        exit(42);
    }
    inherited();
    in_child(1, fresh);
    in_child(3, fresh);
    in_child(1, gone);
    in_child(1, grown);
    CHECK(pthread_atfork(NULL, NULL, handler) == 0);
    is_handled = 1;
    in_child(1, NULL);
    pid_t child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", arguments[0], "child", (char *)NULL);
        _exit(1);
    }
    await(child);
    say("firstmap ok\n");
    return 0;
}
