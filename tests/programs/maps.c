/*
 * maps.c: memory that the program maps itself. Page: 4096 bytes.
 *
 *   kept          mmap 64 pages, 16 touched, kept                         262144 mapped, 65536 resident
 *   moved         mmap 8, all touched, mremap to 32 (may move), kept      131072 mapped, 32768 resident
 *   shrunk        mmap 32, all touched, mremap to 4, kept                  16384 mapped, all resident
 *   pierced       mmap 16, all touched, munmap pages 4-7, kept             49152 mapped, all resident
 *   advised       mmap 16, all touched, madvise(DONTNEED) 8-15, kept       65536 mapped, 32768 resident
 *   gone          mmap 100, munmap                                              0
 *   shared        mmap shared 10, 5 touched, kept                          40960 mapped, 20480 resident
 *   file          mmap of this program's first page, read                   4096 mapped
 *   break         sbrk(+20 pages), all touched, sbrk(-12)                  32768 more data segment
 *   failing       mmap of length 0 (EINVAL), munmap unaligned (EINVAL), mremap of a page
 *                 that was unmapped (EFAULT)
 *
 * mmap 9 calls that succeed, mremap 2, munmap 3 (pierced, gone, failing's page), madvise 1, sbrk 2
 * that move the break.
 * No malloc at all. mincore is asked for the resident pages of each.
 */
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

static char *map(size_t pages, int flags)
{
    char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void touch(char *at, size_t pages)
{
    for (size_t i = 0; i < pages; i++)
        *(volatile char *)(at + i * PAGE) = 1;
}

static size_t resident(char *at, size_t pages)
{
    unsigned char state[128];
    size_t sum = 0;
    CHECK(pages <= sizeof state && mincore(at, pages * PAGE, state) == 0);
    for (size_t i = 0; i < pages; i++)
        sum += state[i] & 1;
    return sum;
}

NOINLINE static void kept(void)
{
    char *at = map(64, MAP_PRIVATE);
    touch(at, 16);
    say("kept %zu\n", resident(at, 64));
}

NOINLINE static void moved(void)
{
    char *at = map(8, MAP_PRIVATE);
    touch(at, 8);
    at = mremap(at, 8 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED);
    say("moved %zu\n", resident(at, 32));
}

NOINLINE static void shrunk(void)
{
    char *at = map(32, MAP_PRIVATE);
    touch(at, 32);
    CHECK(mremap(at, 32 * PAGE, 4 * PAGE, 0) == at);
    say("shrunk %zu\n", resident(at, 4));
}

NOINLINE static void pierced(void)
{
    char *at = map(16, MAP_PRIVATE);
    touch(at, 16);
    CHECK(munmap(at + 4 * PAGE, 4 * PAGE) == 0);
    say("pierced %zu\n", resident(at, 4) + resident(at + 8 * PAGE, 8));
}

NOINLINE static void advised(void)
{
    char *at = map(16, MAP_PRIVATE);
    touch(at, 16);
    CHECK(madvise(at + 8 * PAGE, 8 * PAGE, MADV_DONTNEED) == 0);
    say("advised %zu\n", resident(at, 16));
}

NOINLINE static void gone(void)
{
    char *at = map(100, MAP_PRIVATE);
    touch(at, 100);
    CHECK(munmap(at, 100 * PAGE) == 0);
    say("gone\n");
}

NOINLINE static void shared(void)
{
    char *at = map(10, MAP_SHARED);
    touch(at, 5);
    say("shared %zu\n", resident(at, 10));
}

NOINLINE static void file(void)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    char *at = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED && memcmp(at, "\177ELF", 4) == 0);
    close(fd);
    say("file ok\n");
}

NOINLINE static void data_segment(void)
{
    char *before = sbrk(0);
    CHECK(sbrk(20 * PAGE) == before);
    touch(before, 20);
    CHECK(sbrk(-12 * PAGE) == before + 20 * PAGE);
    CHECK(sbrk(0) == before + 8 * PAGE);
    CHECK(brk(before + 8 * PAGE) == 0); /* where it is already */
    say("break ok\n");
}

NOINLINE static void failing(void)
{
    errno = 0;
    CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    CHECK(errno == EINVAL);
    char *at = map(1, MAP_PRIVATE);
    CHECK(munmap(at, PAGE) == 0);
    errno = 0;
    CHECK(mremap(at, PAGE, 2 * PAGE, 0) == MAP_FAILED && errno == EFAULT);
    errno = 0;
    CHECK(munmap(at + 1, PAGE) == -1 && errno == EINVAL);
    say("failing ok\n");
}

int main(void)
{
    kept();
    moved();
    shrunk();
    pierced();
    advised();
    gone();
    shared();
    file();
    data_segment();
    failing();
    return 0;
}
