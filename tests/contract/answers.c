/*
 * answers.c: what each function answers, one line each: the same under glibc and under any drop-in.
 *
 * A1  No address and no usable size is printed: those may differ.
 * A2  Where POSIX and glibc differ nothing is printed, and the head of the line says so.
 *
 * Not here: every size (sizes.c), pointers that are no blocks (foreign.c).
 */
#include "check.h"

#include <malloc.h>

/* Hidden from the compiler, which knows these functions too well and warns of each error. */
static void *(*volatile call_malloc)(size_t) = malloc;
static void *(*volatile call_calloc)(size_t, size_t) = calloc;
static void *(*volatile call_realloc)(void *, size_t) = realloc;
static void *(*volatile call_reallocarray)(void *, size_t, size_t) = reallocarray;
static void *(*volatile call_memalign)(size_t, size_t) = memalign;
static void *(*volatile call_aligned_alloc)(size_t, size_t) = aligned_alloc;
static int (*volatile call_posix_memalign)(void **, size_t, size_t) = posix_memalign;
static void *(*volatile call_valloc)(size_t) = valloc;
static void *(*volatile call_pvalloc)(size_t) = pvalloc;
static void (*volatile call_free)(void *) = free;

static const size_t sizes[] = {
    0, 1, 24, 4096, (size_t)PTRDIFF_MAX - 4096, PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX - 4096,
    SIZE_MAX - 4095, SIZE_MAX - 15, SIZE_MAX,
};
static const size_t alignments[] = {
    0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 24, 32, 48, 100, 4096, 5000, 65536, (size_t)1 << 22,
    (size_t)1 << 62, ((size_t)1 << 63) - 1, (size_t)1 << 63, ((size_t)1 << 63) + 1, SIZE_MAX,
};
#define COUNT(array) (sizeof array / sizeof *array)

/* The answer to one call: null or not, errno, and how far the address is aligned, up to `wanted`. */
static void answer(const char *name, size_t first, size_t second, void *block, size_t wanted)
{
    int error = errno;
    const char *what = block == NULL ? "null" : (uintptr_t)block % wanted == 0 ? "block" : "misaligned";
    say("%s(%zu, %zu): %s, errno %d\n", name, first, second, what, error);
    call_free(block);
}

/* The power of two that glibc rounds an alignment up to. */
static size_t rounded(size_t alignment)
{
    size_t power = 16;
    while (power < alignment && power < ((size_t)1 << 63))
        power *= 2;
    return power;
}

static void plain(void)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t size = sizes[i];
        errno = 77;
        answer("malloc", size, 0, call_malloc(size), 16);
        errno = 77;
        answer("calloc", size, 1, call_calloc(size, 1), 16);
        errno = 77;
        answer("calloc", size, 3, call_calloc(size, 3), 16);
        errno = 77;
        answer("calloc", 3, size, call_calloc(3, size), 16);
        errno = 77;
        answer("valloc", size, 0, call_valloc(size), 4096);
        errno = 77;
        answer("pvalloc", size, 0, call_pvalloc(size), 4096);
    }
    void *first = call_malloc(0), *second = call_malloc(0);
    say("two of malloc(0): %s\n", first != second ? "different" : "the same");
    call_free(first);
    call_free(second);
}

static void aligned(void)
{
    for (size_t a = 0; a < COUNT(alignments); a++) {
        size_t alignment = alignments[a];
        for (size_t i = 0; i < COUNT(sizes); i++) {
            size_t size = sizes[i];
            errno = 77;
            answer("memalign", alignment, size, call_memalign(alignment, size), rounded(alignment));
            errno = 77;
            answer("aligned_alloc", alignment, size, call_aligned_alloc(alignment, size), rounded(alignment));
            void *untouched = &alignment, *block = untouched;
            errno = 77;
            int result = call_posix_memalign(&block, alignment, size);
            /* glibc sets errno where memory runs out; its manual says that it does not. */
            CHECK(result == ENOMEM || errno == 77);
            const char *what = block == untouched                       ? "untouched"
                               : (uintptr_t)block % rounded(alignment) == 0 ? "block"
                                                                           : "misaligned";
            say("posix_memalign(%zu, %zu): %d, %s\n", alignment, size, result, what);
            if (block != untouched)
                call_free(block);
        }
    }
}

/* The contents of a block, after a call that should not have touched them. */
static int holds(const unsigned char *block, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != (unsigned char)(i * 7 + 1))
            return 0;
    return 1;
}

static void *filled(size_t size)
{
    unsigned char *block = call_malloc(size);
    CHECK(block != NULL);
    for (size_t i = 0; i < size; i++)
        block[i] = (unsigned char)(i * 7 + 1);
    return block;
}

static void resized(void)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t size = sizes[i];
        errno = 77;
        answer("realloc(NULL)", size, 0, call_realloc(NULL, size), 16);
        void *block = filled(100);
        errno = 77;
        void *moved = call_realloc(block, size);
        int error = errno;
        /* realloc(p, 0) has freed the block; any other null has not. */
        const char *kept = size == 0                                       ? "freed"
                           : moved == NULL                                 ? (holds(block, 100) ? "kept" : "spoilt")
                           : holds(moved, size < 100 ? size : (size_t)100) ? "kept"
                                                                           : "spoilt";
        say("realloc(block, %zu): %s, %s, errno %d\n", size, moved ? "block" : "null", kept, error);
        call_free(moved != NULL ? moved : size == 0 ? NULL : block);
        block = filled(100);
        errno = 77;
        moved = call_reallocarray(block, size, 2);
        error = errno;
        say("reallocarray(block, %zu, 2): %s, errno %d\n", size, moved ? "block" : "null", error);
        if (moved == NULL && size != 0)
            CHECK(holds(block, 100));
        call_free(moved != NULL ? moved : size == 0 ? NULL : block);
    }
    void *block = filled(100);
    errno = 77;
    say("reallocarray(block, 0, 5): %s, errno %d\n", call_reallocarray(block, 0, 5) ? "block" : "null", errno);
}

static void errno_of_free(void)
{
    static const size_t freed[] = {0, 1, 100, 1000, 5000, 40000, 200000, 5 << 20, 100 << 20};
    for (size_t i = 0; i < COUNT(freed); i++) {
        char *block = call_malloc(freed[i]);
        CHECK(block != NULL);
        memset(block, 1, freed[i]);
        errno = 78;
        call_free(block);
        say("errno after free of %zu: %d\n", freed[i], errno);
    }
    errno = 79;
    call_free(NULL);
    say("errno after free(NULL): %d\n", errno);
    say("malloc_usable_size(NULL): %zu\n", malloc_usable_size(NULL));
}

static void options(void)
{
    static const int values[] = {-5, -1, 0, 1, 2, 64, 160, 161, 1 << 20, 32 << 20, (32 << 20) + 1};
    for (int parameter = -10; parameter <= 3; parameter++)
        for (size_t i = 0; i < COUNT(values); i++)
            if (parameter != M_PERTURB) /* it has an effect that glibc shows in blocks to come */
                say("mallopt(%d, %d): %d\n", parameter, values[i], mallopt(parameter, values[i]));
    say("malloc_info(1): %d\n", malloc_info(1, stdout));
}

int main(void)
{
    plain();
    aligned();
    resized();
    errno_of_free();
    options();
    say("answers end\n");
    return 0;
}
