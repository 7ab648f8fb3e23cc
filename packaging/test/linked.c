/* linked.c: a program that is linked with the allocator says which allocator its blocks are of.
 *
 * Not here: what the allocator does (tests/contract).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <skinflint.h>

int main(void)
{
    char *blocks[1000];
    int i, gave;

    for (i = 0; i < 1000; i++) {
        blocks[i] = malloc(4096);
        memset(blocks[i], 1, 4096);
    }
    for (i = 0; i < 1000; i++)
        free(blocks[i]);
    gave = skinflint_trim();
    puts(gave ? "skinflint" : "another allocator");
    return !gave;
}
