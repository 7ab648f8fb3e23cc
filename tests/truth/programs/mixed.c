/* Planted: among texts of any length as many records of SIZE, which is a round size and a header. Mended: FIXED. */
#include <stdlib.h>
#include <string.h>
#ifdef MENDED
#define ASK FIXED
#else
#define ASK SIZE
#endif
static void *volatile kept[2 * COUNT];

__attribute__((noinline)) static void *text(size_t bytes)
{
    void *it = malloc(bytes);
    memset(it, 1, bytes);
    return it;
}

__attribute__((noinline)) static void *record(void)
{
    void *it = malloc(ASK);
    memset(it, 1, ASK);
    return it;
}

int main(void)
{
    unsigned seed = 1;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525 + 1013904223;
        kept[2 * i] = text(100 + (seed >> 10) % 1500);
        kept[2 * i + 1] = record();
    }
    return 0;
}
