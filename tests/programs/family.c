/*
 * family.c: every function of the malloc family, its errors included. With glibc 2.36:
 *
 *   call                                         result                         a block?
 *   malloc(0)                                    not null                       1 x 0, freed
 *   malloc(PTRDIFF_MAX + 1)                      null, ENOMEM                   no
 *   calloc(7, 11)                                77 zeroes                      1 x 77, freed
 *   calloc(0, 5)                                 not null                       1 x 0, freed
 *   calloc(SIZE_MAX / 2, 3)                      null, ENOMEM (overflow)        no
 *   realloc(NULL, 100)                           not null                       1 x 100
 *   realloc(that, 200)                           contents kept                  1 x 200
 *   realloc(that, PTRDIFF_MAX + 1)               null, ENOMEM, block lives      no
 *   realloc(that, 0)                             null: freed                    no
 *   reallocarray(NULL, 10, 20)                   not null                       1 x 200
 *   reallocarray(that, SIZE_MAX / 2, 3)          null, ENOMEM, block lives      no; freed
 *   aligned_alloc(64, 192)                       multiple of 64                 1 x 192, freed
 *   memalign(4096, 100)                          multiple of 4096               1 x 100, freed
 *   posix_memalign(&p, 128, 300)                 0, multiple of 128             1 x 300, freed
 *   posix_memalign(&p, 3, 300), (&p, 4, 300)     EINVAL, p as it was            no
 *   posix_memalign(&p, 128, PTRDIFF_MAX)         ENOMEM, errno as it was        no
 *   valloc(10)                                   page                           1 x 10, freed
 *   pvalloc(10)                                  page                           1 x 10 (one page), freed
 *   pvalloc(SIZE_MAX)                            null, ENOMEM                   no
 *   malloc_usable_size(NULL)                     0                              no
 *   free(NULL)                                   errno as it was                no
 *   cfree is gone from glibc 2.26 on             -
 *   strdup, asprintf, getcwd(NULL)               inside libc                    3 or more, freed
 *   malloc(100), live at the end                                                1 x 100
 */
#define _GNU_SOURCE
#include "check.h"

#include <malloc.h>

/* Hidden from the compiler, which knows these functions too well and warns of each error. */
static size_t hide(size_t n)
{
    OPAQUE(n);
    return n;
}

static void *(*volatile call_malloc)(size_t) = malloc;
static void *(*volatile call_calloc)(size_t, size_t) = calloc;
static void *(*volatile call_realloc)(void *, size_t) = realloc;
static void *(*volatile call_reallocarray)(void *, size_t, size_t) = reallocarray;
static int (*volatile call_posix_memalign)(void **, size_t, size_t) = posix_memalign;
static void (*volatile call_free)(void *) = free;

static const size_t too_much = (size_t)PTRDIFF_MAX + 1;

static int multiple(const void *block, size_t alignment)
{
    return block != NULL && (uintptr_t)block % alignment == 0;
}

NOINLINE static void plain(void)
{
    void *block = call_malloc(0);
    CHECK(multiple(block, 16));
    call_free(block);
    errno = 0;
    CHECK(call_malloc(hide(too_much)) == NULL && errno == ENOMEM);
    char *zeroes = call_calloc(7, 11);
    CHECK(multiple(zeroes, 16));
    for (int i = 0; i < 77; i++)
        CHECK(zeroes[i] == 0);
    CHECK(malloc_usable_size(zeroes) >= 77);
    call_free(zeroes);
    block = call_calloc(0, 5);
    CHECK(block != NULL);
    call_free(block);
    errno = 0;
    CHECK(call_calloc(hide(SIZE_MAX / 2), 3) == NULL && errno == ENOMEM);
    CHECK(malloc_usable_size(NULL) == 0);
    errno = 77;
    call_free(NULL);
    CHECK(errno == 77);
    block = call_malloc(40);
    errno = 78;
    call_free(block);
    CHECK(errno == 78);
    say("plain ok\n");
}

NOINLINE static void resized(void)
{
    char *block = call_realloc(NULL, 100);
    CHECK(block != NULL);
    memset(block, 'r', 100);
    block = call_realloc(block, 200);
    CHECK(block != NULL && block[0] == 'r' && block[99] == 'r');
    errno = 0;
    CHECK(call_realloc(block, hide(too_much)) == NULL && errno == ENOMEM);
    CHECK(block[0] == 'r' && block[99] == 'r');
    CHECK(call_realloc(block, 0) == NULL);
    block = call_reallocarray(NULL, 10, 20);
    CHECK(block != NULL);
    block[199] = 'a';
    errno = 0;
    CHECK(call_reallocarray(block, hide(SIZE_MAX / 2), 3) == NULL && errno == ENOMEM);
    CHECK(block[199] == 'a');
    call_free(block);
    say("resized ok\n");
}

NOINLINE static void aligned(void)
{
    void *block = aligned_alloc(64, 192);
    CHECK(multiple(block, 64));
    call_free(block);
    block = memalign(4096, 100);
    CHECK(multiple(block, 4096));
    call_free(block);
    block = NULL;
    CHECK(call_posix_memalign(&block, 128, 300) == 0 && multiple(block, 128));
    call_free(block);
    void *untouched = &block;
    block = untouched;
    CHECK(call_posix_memalign(&block, hide(3), 300) == EINVAL && block == untouched);
    CHECK(call_posix_memalign(&block, hide(4), 300) == EINVAL && block == untouched);
    errno = 79;
    CHECK(call_posix_memalign(&block, 128, hide(PTRDIFF_MAX)) == ENOMEM && block == untouched);
    say("aligned ok\n");
}

NOINLINE static void paged(void)
{
    void *block = valloc(10);
    CHECK(multiple(block, 4096));
    call_free(block);
    block = pvalloc(10);
    CHECK(multiple(block, 4096) && malloc_usable_size(block) >= 4096);
    call_free(block);
    errno = 0;
    CHECK(pvalloc(hide(SIZE_MAX)) == NULL && errno == ENOMEM);
    say("paged ok\n");
}

NOINLINE static void inside_libc(void)
{
    char *text = strdup("duplicate");
    CHECK(text != NULL && strcmp(text, "duplicate") == 0);
    call_free(text);
    CHECK(asprintf(&text, "%d-%s", 42, "printed") == 10);
    call_free(text);
    text = getcwd(NULL, 0);
    CHECK(text != NULL && text[0] == '/');
    call_free(text);
    say("inside libc ok\n");
}

int main(void)
{
    plain();
    resized();
    aligned();
    paged();
    inside_libc();
    void *kept = call_malloc(100);
    CHECK(kept != NULL);
    say("family ok\n");
    return 0;
}
