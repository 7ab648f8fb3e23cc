/*
 * early.c: hostile beginnings and surroundings.
 *
 * As libearly.so (-DLIBRARY, to be preloaded): its constructor, which may run before the recorder's,
 * takes 3 x 201, keeps one, and starts with calloc.
 *
 * As a program, `early [CASE]`; without one, all cases one after the other, each in a child. Each
 * case takes 100 x 103 before, 100 x 107 after, and frees all but 10 of each; 1 line each.
 *
 *   closefds   closes every descriptor from 3 on
 *   nofile     RLIMIT_NOFILE 3: no descriptor can be opened any more
 *   as         RLIMIT_AS at what is mapped plus 16 MiB: a malloc of 1 GiB fails, small ones work
 *   chroot     chroot to an empty directory (needs root; else it only says so on stderr)
 *   nobody     setgid and setuid to 65534 (needs root; else the same)
 *   env        empties its environment
 *   cwd        its working directory is removed; nothing can be created there
 */
#include "check.h"

#ifdef LIBRARY

static void *kept;

__attribute__((constructor(101))) static void as_early_as_possible(void)
{
    void *first = calloc(3, 67);
    void *second = must_malloc(201);
    kept = must_malloc(201);
    CHECK(first != NULL);
    free(first);
    free(second);
}

#else

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

NOINLINE static void hundred(size_t size)
{
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = must_malloc(size);
    for (int i = 10; i < 100; i++)
        free(blocks[i]);
}

static void close_all(void)
{
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
}

static void no_files(void)
{
    const struct rlimit limit = {3, 3};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
}

static void little_room(void)
{
    char text[256] = {0};
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    rlim_t bytes = strtoull(text, NULL, 10) * 4096 + (16 << 20);
    const struct rlimit limit = {bytes, bytes};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    void *large = malloc((size_t)1 << 30);
    OPAQUE(large);
    CHECK(large == NULL && errno == ENOMEM);
}

static void new_root(void)
{
    char name[] = "/tmp/early-root-XXXXXX";
    CHECK(mkdtemp(name) != NULL);
    int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(tmp >= 0);
    int entered = chroot(name);
    int reason = errno;
    /* A process may stand in a directory that has no name any more. */
    CHECK(unlinkat(tmp, name + strlen("/tmp/"), AT_REMOVEDIR) == 0);
    close(tmp);
    if (entered == 0)
        CHECK(chdir("/") == 0 && access("/proc", F_OK) == -1);
    else {
        CHECK(reason == EPERM && geteuid() != 0);
        fprintf(stderr, "early: chroot needs root: not tried\n");
    }
}

static void nobody(void)
{
    if (geteuid() != 0) {
        fprintf(stderr, "early: setuid needs root: not tried\n");
        return;
    }
    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(setuid(0) == -1);
}

static void no_environment(void)
{
    CHECK(clearenv() == 0 && getenv("LD_PRELOAD") == NULL);
}

static void elsewhere(void)
{
    char name[] = "/tmp/early-gone-XXXXXX";
    CHECK(mkdtemp(name) != NULL);
    CHECK(chdir(name) == 0 && rmdir(name) == 0);
    CHECK(open("anything", O_CREAT | O_WRONLY, 0600) == -1 && errno == ENOENT);
}

static const struct {
    const char *name;
    void (*change)(void);
} cases[] = {
    {"closefds", close_all}, {"nofile", no_files},      {"as", little_room}, {"chroot", new_root},
    {"nobody", nobody},      {"env", no_environment},   {"cwd", elsewhere},
};

enum { CASES = sizeof cases / sizeof cases[0] };

static void run(int index)
{
    hundred(103);
    cases[index].change();
    hundred(107);
    say("early: %s ok\n", cases[index].name);
}

int main(int argc, char **argv)
{
    for (int i = 0; i < CASES; i++) {
        if (argc > 1) {
            if (strcmp(argv[1], cases[i].name) == 0) {
                run(i);
                return 0;
            }
            continue;
        }
        int status = 0;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            run(i);
            return 0;
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    return argc > 1 ? 2 : 0;
}

#endif
