/* Control: a phase loads what the program works on. */
#include "skinflint.h"
#include <stdlib.h>
#include <string.h>
static void *volatile kept[COUNT];

__attribute__((noinline)) static void *load(void)
{
    void *it = malloc(BYTES);
    memset(it, 1, BYTES);
    return it;
}

int main(void)
{
    skinflint_mark("load begin");
    for (int i = 0; i < COUNT; i++)
        kept[i] = load();
    skinflint_mark("load end");
    for (int i = 0; i < COUNT; i++) {
        void *passing = load();
        free(passing);
    }
    return 0;
}
