/*
 * segments.c: shared memory of System V, each segment to be removed at its last detach.
 *
 *   kept          8 MiB less 100 bytes, 6 MiB touched, kept                     8388608 mapped, 6291456 resident
 *   gone          4 MiB, all touched, detached                                        0
 *   twice         3 MiB, attached twice, touched by both, the second detached   3145728, all resident
 *   inherited     2 MiB, all touched, kept; a child of fork detaches it         2097152, in the child 0
 *   failing       a segment that is not there, an address where none is: each is -1 with EINVAL
 *
 * A block of 1000 first, kept. The child makes no heap call, and ends with 42. Pages of shared memory that it has not
 * touched are not resident in it.
 */
#include "check.h"

#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>

enum { MIB = 1 << 20 };

static int segment(size_t bytes)
{
    int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    CHECK(id >= 0);
    return id;
}

static void removed(int id)
{
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
}

NOINLINE static void kept(void)
{
    int id = segment(8 * MIB - 100);
    char *at = shmat(id, NULL, 0);
    CHECK(at != (void *)-1);
    removed(id);
    memset(at, 1, 6 * MIB);
}

NOINLINE static void gone(void)
{
    int id = segment(4 * MIB);
    char *at = shmat(id, NULL, 0);
    CHECK(at != (void *)-1);
    removed(id);
    memset(at, 1, 4 * MIB);
    CHECK(shmdt(at) == 0);
}

NOINLINE static void twice(void)
{
    int id = segment(3 * MIB);
    char *first = shmat(id, NULL, 0), *second = shmat(id, NULL, SHM_RDONLY);
    CHECK(first != (void *)-1 && second != (void *)-1 && first != second);
    removed(id);
    memset(first, 1, 3 * MIB);
    for (int i = 0; i < 3 * MIB; i += 4096)
        CHECK(*(volatile char *)(second + i) == 1);
    CHECK(shmdt(second) == 0);
}

NOINLINE static char *inherited(void)
{
    int id = segment(2 * MIB);
    char *at = shmat(id, NULL, 0);
    CHECK(at != (void *)-1);
    removed(id);
    memset(at, 1, 2 * MIB);
    return at;
}

NOINLINE static void failing(void)
{
    static char none[4096];
    errno = 0;
    CHECK(shmat(-1, NULL, 0) == (void *)-1 && errno == EINVAL);
    errno = 0;
    CHECK(shmdt(none) == -1 && errno == EINVAL);
    errno = 0;
    CHECK(shmdt(NULL) == -1 && errno == EINVAL);
}

int main(void)
{
    char *block = must_malloc(1000);
    OPAQUE(block);
    kept();
    gone();
    twice();
    char *at = inherited();
    failing();
    pid_t child = fork();
    if (child == 0) {
        CHECK(shmdt(at) == 0);
        exit(42);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    say("segments ok\n");
    return 0;
}
