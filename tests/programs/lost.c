/*
 * lost.c: processes that come out of this one and that no preloaded library can speak for. The argument says which:
 *
 *   copy      fork; the child has no descriptor left to reach anybody with, and allocates 100 blocks of 211 bytes
 *   fork      fork, and exec of a static program by execv        spawn     the same by posix_spawn
 *   vfork     the same by vfork and execl                        exec      no child: it becomes the static program
 *   bare      fork, and exec of this program without any variable (it then waits for its stdin to end)
 *   number    fork, and exec of the static program by its number, through syscall
 *   shell     system, without any variable
 *   quiet     a copy by the number of clone, which rewrites the 8 MiB that it inherits and makes no heap call
 *   idle      a copy by the number of clone, which calls itself "waits", and makes no heap call
 *   few       fork, and exec of this program with room for two more descriptors: too few for a hello's answer
 *   late      fork; the child goes on for a while after this program has ended, and then allocates 100 blocks of 229
 *   none      what must not be missed: a child that does nothing, one whose exec fails, one that is recorded,
 *             and a failing exec of its own
 *
 * Without an argument, `none`. It prints its line last, but for exec, whose program prints "still".
 */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

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

static void by_number(void)
{
    char *words[] = {still, NULL};
    pid_t child = fork();
    if (child == 0) {
        syscall(SYS_execve, still, words, environ);
        _exit(127);
    }
    wait_for(child, 0);
}

static void shell(void)
{
    CHECK(clearenv() == 0);
    int status = system("exit 3");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

/* Long enough for a process to be found by searching. */
static void stay(void)
{
    struct timespec time = {0, 700000000};
    nanosleep(&time, NULL); // CLOCK: searching takes place some fifty times a second
}

static void quiet(void)
{
    size_t bytes = 8 << 20;
    char *block = must_malloc(bytes);
    memset(block, 1, bytes);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        memset(block, 2, bytes);
        stay();
        syscall(SYS_exit_group, 0);
    }
    wait_for(child, 0);
    free(block);
}

static void idle(void)
{
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        // Not by prctl: a recorder may look at that, and begin.
        int name = open("/proc/self/comm", O_WRONLY);
        CHECK(name >= 0 && write(name, "waits", 5) == 5);
        stay();
        syscall(SYS_exit_group, 0);
    }
    wait_for(child, 0);
    free(must_malloc(227));
}

static void late(void)
{
    if (fork() != 0)
        return;
    stay();
    for (int i = 0; i < 100; i++)
        memset(must_malloc(229), i, 229);
    _exit(0);
}

static void few(void)
{
    pid_t child = fork();
    if (child == 0) {
        int next = dup(0);
        struct rlimit two = {next + 2, next + 2};
        CHECK(next > 0 && close(next) == 0 && setrlimit(RLIMIT_NOFILE, &two) == 0);
        execl(self, self, "keep", (char *)NULL);
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
    if (!strcmp(how, "keep"))
        return 0;
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
    else if (!strcmp(how, "number"))
        by_number();
    else if (!strcmp(how, "shell"))
        shell();
    else if (!strcmp(how, "quiet"))
        quiet();
    else if (!strcmp(how, "idle"))
        idle();
    else if (!strcmp(how, "few"))
        few();
    else if (!strcmp(how, "late"))
        late();
    else if (!strcmp(how, "exec"))
        execl(still, still, (char *)NULL);
    else
        nobody();
    say("lost: %s\n", how);
    return 0;
}
