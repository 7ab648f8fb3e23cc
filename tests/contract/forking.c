/*
 * forking.c: fork from threads that allocate, and every other way to a child.
 *
 *   threads   8 threads allocate without pause; 300 forks meanwhile, from all of them in turn. Each child
 *             allocates, frees what its parent took, starts a thread, and forks once more.
 *   handlers  atfork handlers that allocate, registered before and after everybody else's
 *   vfork     vfork + exec, posix_spawn, popen
 * Each child must end with 0 within the alarm.
 */
#include "check.h"

#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

enum { THREADS = 8, FORKS = 300, BLOCKS = 64 };

extern char **environ;
static int stop, forked;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void work(void **blocks, unsigned *seed, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        *seed = *seed * 1103515245 + 12345;
        unsigned slot = (*seed >> 16) % BLOCKS;
        free(blocks[slot]);
        size_t size = (*seed >> 8) % 100 == 0 ? 100000 : (*seed >> 4) % 1500;
        blocks[slot] = must_malloc(size + 1);
        memset(blocks[slot], (int)slot, size + 1);
    }
}

static void *in_child(void *nothing)
{
    void *blocks[BLOCKS] = {0};
    unsigned seed = 4711;
    work(blocks, &seed, 150);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return nothing;
}

/* A child: uses what it inherited, and has a child of its own. */
static void child(void **blocks, unsigned seed)
{
    alarm(60);
    work(blocks, &seed, 150);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_child, NULL) == 0);
    work(blocks, &seed, 150);
    pid_t grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
        work(blocks, &seed, 150);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
        _exit(0);
    }
    int status;
    CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    _exit(0);
}

static void *allocates(void *argument)
{
    void *blocks[BLOCKS] = {0};
    unsigned seed = (unsigned)(uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        work(blocks, &seed, 200);
        if (pthread_mutex_trylock(&turn) != 0)
            continue;
        if (forked < FORKS) {
            forked++;
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0)
                child(blocks, seed);
            int status;
            CHECK(waitpid(pid, &status, 0) == pid);
            if (status != 0) {
                say("fork %d: child ended with status %x\n", forked, status);
                _exit(1);
            }
        } else
            __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
        pthread_mutex_unlock(&turn);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&all[i], NULL, allocates, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    say("forks: %d\n", forked);
}

static int handled[3];

static void before(void) { free(must_malloc(300)); handled[0]++; }
static void after_in_parent(void) { free(must_malloc(40000)); handled[1]++; }
static void after_in_child(void) { free(must_malloc(500)); handled[2]++; }

/* Registered before main, as a library might. */
__attribute__((constructor)) static void early(void)
{
    pthread_atfork(before, after_in_parent, after_in_child);
}

static void finish(pid_t pid, const char *what)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    say("%s ok\n", what);
}

static void others(void)
{
    char *arguments[] = {"true", NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        execve("/bin/true", arguments, environ);
        _exit(1);
    }
    finish(pid, "vfork");
    CHECK(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ) == 0);
    finish(pid, "posix_spawn");
    FILE *pipe = popen("echo from a pipe", "r");
    CHECK(pipe != NULL);
    char line[64] = "";
    CHECK(fgets(line, sizeof line, pipe) != NULL);
    CHECK(pclose(pipe) == 0);
    say("popen: %s", line);
    CHECK(system("exit 3") == 3 << 8);
    say("system ok\n");
}

int main(void)
{
    alarm(280);
    pthread_atfork(before, after_in_parent, after_in_child);
    others();
    int calls = handled[0];
    pid_t pid = fork();
    if (pid == 0) {
        free(must_malloc(700));
        _exit(handled[2] == 2 ? 0 : 1);
    }
    finish(pid, "handlers in the child");
    CHECK(handled[0] == calls + 2 && handled[1] == handled[0]);
    threads();
    say("forking ok\n");
    return 0;
}
