/*
 * usable.c: one block of each of 17 sizes, kept, and for each the line "SIZE USABLE", as
 * malloc_usable_size says. Run on any allocator, it tells what a recording must say of it.
 *
 * Expected with glibc 2.36 (predicted.c has the rule): 1 -> 24, 100 -> 104, 1025 -> 1032 ...
 */
#include <malloc.h>

#include "check.h"

int main(void)
{
    static const size_t sizes[] = {1,    9,    17,   33,   50,    100,   129,    200,    500,
                                   1000, 1025, 2000, 5000, 10000, 40000, 100000, 1000003};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *block = must_malloc(sizes[i]);
        say("%zu %zu\n", sizes[i], malloc_usable_size(block));
    }
    return 0;
}
