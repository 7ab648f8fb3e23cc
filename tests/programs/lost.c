/*
 * lost.c: processes that come out of this one and that no preloaded library can speak for. The argument says which:
 *
 *   copy      fork; the child has no descriptor left to reach anybody with, and allocates 100 blocks of 211 bytes
 *   fork      fork, and exec of a static program by execv        spawn     the same by posix_spawn
 *   vfork     the same by vfork and execl                        exec      no child: it becomes the static program
 *   bare      fork, and exec of this program without any variable (it then waits for its stdin to end)
 *   none      what must not be missed: a child that does nothing, one whose exec fails, one that is recorded,
 *             and a failing exec of its own
 *
 * Without an argument, `none`. It prints its line last, but for exec, whose program prints "still".
 */
#include "check.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;
static char still[4096 + 32], self[4096 + 32];

static void wait_for(pid_t child, int expected)
{
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected);
}

static void copy(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
        for (int i = 0; i < 100; i++)
            memset(must_malloc(211), i, 211);
        _exit(0);
    }
    wait_for(child, 0);
}

static void by_fork(void)
{
    char *words[] = {still, NULL};
    pid_t child = fork();
    if (child == 0) {
        execv(still, words);
        _exit(127);
    }
    wait_for(child, 0);
}

static void by_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        execl(still, still, "1", "2", "3", "4", "5", "6", "7", (char *)NULL);
        _exit(127);
    }
    wait_for(child, 7);
}

static void by_spawn(void)
{
    char *words[] = {still, NULL};
    pid_t child = 0;
    CHECK(posix_spawn(&child, still, NULL, NULL, words, environ) == 0);
    wait_for(child, 0);
}

static void bare(void)
{
    char *none[] = {NULL};
    pid_t child = fork();
    if (child == 0) {
        execle(self, self, "wait", "for", "the", "end", "of", "stdin", (char *)NULL, none);
        _exit(127);
    }
    wait_for(child, 0);
}

static void nobody(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    wait_for(child, 0);
    child = vfork();
    if (child == 0) {
        execlp("no-such-program-anywhere", "x", (char *)NULL);
        _exit(127);
    }
    wait_for(child, 127);
    child = fork();
    if (child == 0) {
        execl(self, self, "end", (char *)NULL);
        _exit(127);
    }
    wait_for(child, 0);
    char *words[] = {self, NULL};
    CHECK(execve("/no/such/program", words, environ) == -1 && errno == ENOENT);
    free(must_malloc(223));
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "none";
    ssize_t length = readlink("/proc/self/exe", self, 4096);
    CHECK(length > 0);
    strcpy(still, self);
    strcpy(strrchr(still, '/'), "/still");
    if (!strcmp(how, "end"))
        return 0;
    if (!strcmp(how, "wait")) {
        char byte;
        while (read(0, &byte, 1) > 0)
            ;
        return argc == 7 ? 0 : 1;
    }
    must_malloc(227);
    if (!strcmp(how, "copy"))
        copy();
    else if (!strcmp(how, "fork"))
        by_fork();
    else if (!strcmp(how, "vfork"))
        by_vfork();
    else if (!strcmp(how, "spawn"))
        by_spawn();
    else if (!strcmp(how, "bare"))
        bare();
    else if (!strcmp(how, "exec"))
        execl(still, still, (char *)NULL);
    else
        nobody();
    say("lost: %s\n", how);
    return 0;
}
