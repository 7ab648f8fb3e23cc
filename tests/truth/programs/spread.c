/* Control: texts of FROM to TO bytes, each as long as it is. */
#include <stdlib.h>
#include <string.h>
static void *volatile kept[COUNT];

__attribute__((noinline)) static void *text(size_t bytes)
{
    void *it = malloc(bytes);
    memset(it, 1, bytes);
    return it;
}

int main(void)
{
    unsigned seed = 1;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525 + 1013904223;
        kept[i] = text(FROM + (seed >> 10) % (TO - FROM));
    }
    return 0;
}
