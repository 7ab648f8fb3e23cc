/*
 * reports.c: the C library's reports: that they are there, that their figures move, and their forms.
 *
 *   figures   mallinfo, mallinfo2: used bytes grow by what is taken and shrink by what is freed
 *   info      malloc_info on stdout: XML, read by the test
 *   stats     malloc_stats on stderr: the lines of glibc
 *   others    malloc_trim, malloc_get_state, the aliases __libc_*
 */
#include "check.h"

#include "skinflint.h"

#include <malloc.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
extern void __libc_free(void *);
/* Of old glibc only. */
extern __attribute__((weak)) int __posix_memalign(void **, size_t, size_t);

static size_t used(void)
{
    struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

static void figures(void)
{
    enum { BLOCKS = 1000 };
    static void *blocks[BLOCKS];
    size_t before = used();
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = must_malloc(i % 10 == 0 ? 300000 : 1000);
    size_t taken = 100 * 300000 + 900 * 1000;
    size_t between = used();
    if (between < before + taken || between > before + taken * 5 / 4) {
        say("used: %zu before, %zu with %zu more\n", before, between, taken);
        _exit(1);
    }
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo narrow = mallinfo();
    struct mallinfo2 wide = mallinfo2();
    CHECK((size_t)narrow.uordblks + (size_t)narrow.hblkhd >= taken);
    CHECK(wide.arena + wide.hblkhd >= wide.uordblks + wide.fordblks);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    size_t after = used();
    if (after > before + taken / 10) {
        say("used: %zu before, %zu after all was freed\n", before, after);
        _exit(1);
    }
    say("figures ok\n");
}

static void others(void)
{
    /* 64 MiB, touched and freed: there is something to give back, or it went by itself. */
    char *block = must_malloc(64 << 20);
    memset(block, 1, 64 << 20);
    free(block);
    int trimmed = malloc_trim(0);
    CHECK(trimmed == 0 || trimmed == 1);
    trimmed = skinflint_trim();
    CHECK(trimmed == 0 || trimmed == 1);
    block = __libc_malloc(100);
    block = __libc_realloc(block, 200);
    CHECK(block != NULL && malloc_usable_size(block) >= 200);
    free(block);
    __libc_free(__libc_calloc(10, 10));
    free(__libc_memalign(256, 10));
    free(__libc_valloc(10));
    free(__libc_pvalloc(10));
    void *aligned = NULL;
    if (__posix_memalign != NULL)
        CHECK(__posix_memalign(&aligned, 64, 10) == 0 && aligned != NULL);
    __libc_free(aligned);
    say("others ok\n");
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (strcmp(argv[1], "figures") == 0)
        figures();
    if (strcmp(argv[1], "others") == 0)
        others();
    if (strcmp(argv[1], "info") == 0) {
        CHECK(malloc_info(0, stdout) == 0);
        CHECK(fflush(stdout) == 0);
    }
    if (strcmp(argv[1], "stats") == 0)
        malloc_stats();
    return 0;
}
