/* Tiles of a map are packed into a block that would hold the worst case, 64 KiB, and the block is kept as it is.
 * Mended: what is not used of it goes back by realloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { SIDE = 128, PIXELS = SIDE * SIDE, WORST = PIXELS * 4, TILES = 1200 };
struct packed { unsigned char *bytes; unsigned length; };
static struct packed tiles[TILES];
static unsigned short pixels[PIXELS];

static void draw(unsigned n)
{
    unsigned short colour = n;
    for (int i = 0; i < PIXELS; i++) {
        if (roll(40) == 0)
            colour = roll(512);
        pixels[i] = colour;
    }
}

/* Runs: a colour in two bytes, and how often. */
static struct packed tile_pack(void)
{
    struct packed p = { malloc(WORST), 0 };
    for (int i = 0; i < PIXELS;) {
        int run = 1;
        while (i + run < PIXELS && run < 255 && pixels[i + run] == pixels[i])
            run++;
        p.bytes[p.length++] = pixels[i] >> 8;
        p.bytes[p.length++] = pixels[i];
        p.bytes[p.length++] = run;
        i += run;
    }
#ifdef MENDED
    p.bytes = realloc(p.bytes, p.length);
#endif
    return p;
}

int main(void)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < TILES; i++) {
        draw(i);
        tiles[i] = tile_pack();
    }
    skinflint_mark("packed");
    for (int i = 0; i < 400000; i++) {
        struct packed *p = &tiles[roll(TILES)];
        sum += p->bytes[roll(p->length)];
    }
    printf("%lu\n", sum);
    return 0;
}
