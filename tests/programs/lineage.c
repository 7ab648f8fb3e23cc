/*
 * lineage.c: three generations of copies, each with blocks of its own and of those before it.
 *
 * First process: 200 x 1000, kept. It forks; its child takes 30 x 500 and forks; the grandchild
 * frees 50 x 1000 and 10 x 500 and takes 20 x 333. Nobody frees anything else.
 * Live at the end: first 200 x 1000; child the same and 30 x 500; grandchild 150 x 1000, 20 x 500
 * and 20 x 333: 190 blocks of 166,660 bytes.
 */
#include "check.h"

#include <sys/wait.h>

static void *first[200], *second[30];

/* Waits for the only child, which must end well. */
static void await(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

NOINLINE static void grandchild(void)
{
    for (int i = 0; i < 50; i++)
        free(first[i]);
    for (int i = 0; i < 10; i++)
        free(second[i]);
    for (int i = 0; i < 20; i++)
        must_malloc(333);
}

NOINLINE static void child(void)
{
    for (int i = 0; i < 30; i++)
        second[i] = must_malloc(500);
    pid_t pid = fork();
    if (pid == 0) {
        grandchild();
        exit(0);
    }
    await(pid);
}

int main(void)
{
    for (int i = 0; i < 200; i++)
        first[i] = must_malloc(1000);
    pid_t pid = fork();
    if (pid == 0) {
        child();
        exit(0);
    }
    await(pid);
    say("lineage: three generations\n");
    return 0;
}
