/*
 * brought.c: a program that is linked with an allocator which exports no malloc, as Rust's are: all that can be seen
 * of it is what it maps, by the function that mimalloc has for that.
 *
 *   load ─► brought_alloc ─► _mi_prim_alloc ─► mmap     3 x 8 MiB, every page touched
 *   draw ─► brought_alloc ─► _mi_prim_alloc ─► mmap     1 x 8 MiB, every page touched
 *
 * No block of malloc is asked for by the program; 32 MiB are mapped at the end.
 */
#include "check.h"

#include <sys/mman.h>

#define CHUNK (8ul << 20)

NOINLINE static void *_mi_prim_alloc(size_t bytes)
{
    void *chunk = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(chunk != MAP_FAILED);
    return chunk;
}

NOINLINE static void *brought_alloc(size_t bytes)
{
    void *chunk = _mi_prim_alloc(bytes);
    memset(chunk, 1, bytes);
    OPAQUE(chunk);
    return chunk;
}

NOINLINE static void load(void)
{
    for (int i = 0; i < 3; i++)
        CHECK(brought_alloc(CHUNK) != NULL);
}

NOINLINE static void draw(void)
{
    CHECK(brought_alloc(CHUNK) != NULL);
    NO_TAIL_CALL();
}

int main(void)
{
    load();
    draw();
    say("brought: 32 MiB mapped\n");
    return 0;
}
