/*
 * forks.c: every way to make a process, with blocks on both sides.
 *
 * Parent, main thread: 100 blocks of 1000 before any fork (inherited by each forked child).
 *
 *   case       who does what                                                blocks of 333 / 777
 *   fork       3 threads allocate and free 256 all the while; the child     child 50 x 333, frees
 *              takes 50 x 333, frees them and 10 inherited ones             those + 10 x 1000
 *   exec       fork, child execs this program with "child": 7 x 777         child 7 x 777
 *   vfork      vfork, child execs this program with "child"                 child 7 x 777
 *   clone      syscall(SYS_clone, SIGCHLD): as fork, unknown to libc        child 50 x 333, frees
 *   spawn      posix_spawn of this program with "child"                     child 7 x 777
 *   daemon     fork, setsid, fork, close every descriptor but the one       grandchild 50 x 333,
 *              that reports; the grandchild allocates and frees             frees
 *   server     4 children fork and each frees 20 inherited blocks           child frees 20 x 1000,
 *              and takes 30 x 333, kept                                     keeps 30 x 333
 *
 * The parent frees its 100 at the end. Processes: 1 parent; children fork 1, exec 1, vfork 1,
 * clone 1, spawn 1, daemon 2, server 4 = 11.
 * Children say nothing themselves: their order would be left to chance. Each ends with an exit
 * status that the parent checks (42 where all went well).
 */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
static char *inherited[100];
static char *self;
static atomic_int stop, running;

NOINLINE static void *busy(void *unused)
{
    atomic_fetch_add(&running, 1);
    while (!atomic_load(&stop)) {
        void *block = must_malloc(256);
        free(block);
    }
    return unused;
}

NOINLINE static void child_work(int count, int size, int release, int keep)
{
    void *blocks[50];
    for (int i = 0; i < count; i++) {
        blocks[i] = must_malloc((size_t)size);
        memset(blocks[i], 0x5a, (size_t)size);
    }
    for (int i = 0; i < release; i++) {
        CHECK(inherited[i][0] == (char)i);
        free(inherited[i]);
    }
    for (int i = 0; i < count && !keep; i++)
        free(blocks[i]);
}

static void await(pid_t child, const char *what)
{
    int status = 0;
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    say("%s ok\n", what);
}

static void threaded_fork(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, busy, NULL) == 0);
    while (atomic_load(&running) < 3)
        sched_yield();
    pid_t child = fork();
    if (child == 0) {
        child_work(50, 333, 10, 0);
        exit(42);
    }
    await(child, "fork");
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void execs(void)
{
    char *const arguments[] = {self, "child", NULL};
    pid_t child = fork();
    if (child == 0) {
        execv(self, arguments);
        _exit(1);
    }
    await(child, "fork+exec");
    child = vfork();
    if (child == 0) {
        execv(self, arguments);
        _exit(1);
    }
    await(child, "vfork+exec");
    CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    await(child, "posix_spawn");
}

static void raw_clone(void)
{
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        child_work(50, 333, 10, 0);
        _exit(42);
    }
    await(child, "raw clone");
}

static void daemonise(void)
{
    int ends[2];
    char answer = 0;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setsid() > 0);
        if (fork() != 0)
            _exit(42);
        for (int fd = 0; fd < 1024; fd++)
            if (fd != ends[1])
                close(fd);
        child_work(50, 333, 10, 0);
        _exit(write(ends[1], "d", 1) != 1);
    }
    close(ends[1]);
    await(child, "daemon's parent");
    struct pollfd end = {ends[0], POLLIN, 0};
    CHECK(poll(&end, 1, 60000) == 1);
    CHECK(read(ends[0], &answer, 1) == 1 && answer == 'd');
    /* Its end closes the pipe: nobody else may hold our descriptors. */
    CHECK(poll(&end, 1, 60000) == 1 && read(ends[0], &answer, 1) == 0);
    close(ends[0]);
    say("daemon ok\n");
}

static void server(void)
{
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            child_work(30, 333, 20, 1);
            exit(42);
        }
    }
    for (int i = 0; i < 4; i++)
        await(children[i], "pre-forked server");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "child") == 0) {
        for (int i = 0; i < 7; i++)
            must_malloc(777);
        return 42;
    }
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(length > 0);
    self = path;
    for (int i = 0; i < 100; i++) {
        inherited[i] = must_malloc(1000);
        memset(inherited[i], i, 1000);
    }
    threaded_fork();
    execs();
    raw_clone();
    daemonise();
    server();
    for (int i = 0; i < 100; i++) {
        CHECK(inherited[i][999] == (char)i);
        free(inherited[i]);
    }
    return 0;
}
