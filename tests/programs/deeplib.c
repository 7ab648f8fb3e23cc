/* deeplib.c: the plug-in of deep.c. */
#include "check.h"

static char *kept[300];
static char *early;

__attribute__((constructor)) static void begin(void)
{
    early = must_malloc(83);
    strcpy(early, "first");
}

int deep_keep(void);
int deep_keep(void)
{
    for (int i = 0; i < 300; i++) {
        kept[i] = must_malloc(1009);
        memset(kept[i], i, 1009);
    }
    for (int i = 0; i < 300; i += 3) {
        free(kept[i]);
        kept[i] = NULL;
    }
    int count = 0;
    for (int i = 0; i < 300; i++)
        count += kept[i] != NULL && kept[i][1008] == (char)i;
    return count;
}

void deep_free(char *block);
void deep_free(char *block)
{
    free(block);
}

char *deep_make(void);
char *deep_make(void)
{
    char *block = must_malloc(71);
    memset(block, 'y', 71);
    return block;
}

char *deep_first(void);
char *deep_first(void)
{
    return early;
}
