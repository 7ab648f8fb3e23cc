// A library that asks to be initialised first, too, and allocates then: before the options are read.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 300 };
static char *blocks[BLOCKS];
int early_blocks;

__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(10 + i);
        if (blocks[i] == NULL) abort();
        // The slot to its end: what would be a trailer.
        memset(blocks[i], 3, (10 + i + 15) / 16 * 16);
    }
    for (int i = 0; i < BLOCKS; i += 3) free(blocks[i]), blocks[i] = NULL;
    early_blocks = BLOCKS;
}

__attribute__((destructor)) static void end(void) {
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i] == NULL) continue;
        blocks[i] = realloc(blocks[i], 700);
        if (blocks[i] == NULL || blocks[i][9 + i] != 3) abort();
        free(blocks[i]);
    }
    puts("early ok");
    fflush(stdout);
}
