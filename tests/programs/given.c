/*
 * given.c: what the allocator gives. `given fill` acquires 300 blocks of 4,360 and keeps them;
 * `given` asks for one block of each of these sizes and prints what may be used of it.
 */
#include "check.h"
#include <malloc.h>

int main(int argc, char **argv)
{
    static const size_t sizes[] = {4096, 4340, 4360, 4369, 300};
    (void)argv;
    for (int i = 0; argc > 1 && i < 300; i++)
        must_malloc(4360);
    for (size_t i = 0; argc == 1 && i < sizeof sizes / sizeof *sizes; i++)
        say("%zu: %zu\n", sizes[i], malloc_usable_size(must_malloc(sizes[i])));
    return 0;
}
