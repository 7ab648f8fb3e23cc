/*
 * bynumber.c: memory that is mapped by number, through libc's `syscall`, as mozjemalloc does. Page: 4096 bytes.
 *
 *   kept          mmap 2048 pages, all touched, kept               8388608 mapped, all resident
 *   grown         mmap 256, all touched, mremap to 512, kept       2097152 mapped, 1048576 resident
 *   gone          mmap 4096, all touched, munmap                         0
 *   advised       mmap 1024, all touched, madvise(DONTNEED) of the upper half, kept
 *                                                                  4194304 mapped, 2097152 resident
 *   failing       mmap of length 0, munmap and madvise unaligned: each is -1 with EINVAL
 *   others        getpid, an unknown number (ENOSYS), and a call with six arguments that each count
 *
 * mmap 4 calls that succeed, mremap 1, munmap 1, madvise 1. No malloc at all.
 */
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { PAGE = 4096 };

static char *map(size_t pages)
{
    char *at = (char *)syscall(SYS_mmap, NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    CHECK(at != MAP_FAILED);
    memset(at, 1, pages * PAGE);
    return at;
}

NOINLINE static char *kept(void)
{
    char *at = map(2048);
    NO_TAIL_CALL();
    return at;
}

NOINLINE static void grown(void)
{
    char *at = map(256);
    at = (char *)syscall(SYS_mremap, at, 256L * PAGE, 512L * PAGE, (long)MREMAP_MAYMOVE, NULL);
    CHECK(at != MAP_FAILED && at[255 * PAGE] == 1 && at[511 * PAGE] == 0);
}

NOINLINE static void gone(void)
{
    CHECK(syscall(SYS_munmap, map(4096), 4096L * PAGE) == 0);
}

NOINLINE static void advised(void)
{
    char *at = map(1024);
    CHECK(syscall(SYS_madvise, at + 512 * PAGE, 512L * PAGE, (long)MADV_DONTNEED) == 0);
    CHECK(at[511 * PAGE] == 1 && at[512 * PAGE] == 0);
}

/* A long that is an int's -1 in its lower half would be 4294967295. */
static int refused(long result, int why)
{
    int is_so = result == -1L && errno == why;
    errno = 0;
    return is_so;
}

static void failing(char *at)
{
    errno = 0;
    CHECK(refused(syscall(SYS_mmap, NULL, 0L, (long)PROT_READ, (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L), EINVAL));
    CHECK(refused(syscall(SYS_munmap, at + 1, (long)PAGE), EINVAL));
    CHECK(refused(syscall(SYS_madvise, at + 1, (long)PAGE, (long)MADV_NORMAL), EINVAL));
    say("failing ok\n");
}

static void others(void)
{
    CHECK(syscall(SYS_getpid) == getpid() && errno == 0);
    CHECK(refused(syscall(-2L), ENOSYS));
    /* The second page of this program's file, at the place of an older mapping: every argument counts. */
    int file = open("/proc/self/exe", O_RDONLY);
    char there[16], *old = map(3);
    CHECK(file >= 0 && pread(file, there, sizeof there, PAGE) == sizeof there);
    long at = syscall(SYS_mmap, old + PAGE, (long)PAGE, (long)PROT_READ, (long)(MAP_PRIVATE | MAP_FIXED), (long)file, (long)PAGE);
    CHECK(at == (long)(old + PAGE) && memcmp(old + PAGE, there, sizeof there) == 0 && old[2 * PAGE] == 1);
    CHECK(close(file) == 0 && munmap(old, 3L * PAGE) == 0);
    say("others ok\n");
}

int main(void)
{
    char *at = kept();
    grown();
    gone();
    advised();
    failing(at);
    others();
    return 0;
}
