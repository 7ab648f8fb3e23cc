/* Records of one size. Planted: SIZE. Mended: FIXED, which says the same with a field less. */
#include <stdlib.h>
#include <string.h>
#ifdef MENDED
#define ASK FIXED
#else
#define ASK SIZE
#endif
static void *volatile kept[COUNT];

__attribute__((noinline)) static void *record(void)
{
    void *it = malloc(ASK);
    memset(it, 1, ASK);
    return it;
}

int main(void)
{
    for (int i = 0; i < COUNT; i++)
        kept[i] = record();
    return 0;
}
