/* An image in tiles of 32 x 24 pixels, four bytes each, with a head in front of the pixels.
 * Mended: the heads are an array of their own.
 * WIDE: of 64 x 64 pixels, where jemalloc's rounding costs pages that are never touched: the twin saves address space and next
 * to no memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

#ifdef WIDE
enum { WIDTH = 64, HEIGHT = 64, ACROSS = 40, DOWN = 30 };
#else
enum { WIDTH = 32, HEIGHT = 24, ACROSS = 80, DOWN = 75 };
#endif
enum { PIXELS = WIDTH * HEIGHT * 4 };
struct head { int x, y; unsigned drawn; unsigned char *pixels; };
#ifdef MENDED
static struct head heads[ACROSS * DOWN];
#endif
static struct head *tiles[ACROSS * DOWN];

static struct head *tile_new(int x, int y)
{
#ifdef MENDED
    struct head *t = &heads[y * ACROSS + x];
    t->pixels = malloc(PIXELS);
#else
    struct head *t = malloc(sizeof *t + PIXELS);
    t->pixels = (unsigned char *)(t + 1);
#endif
    t->x = x;
    t->y = y;
    t->drawn = 0;
    memset(t->pixels, 255, PIXELS);
    return t;
}

static void draw(struct head *t, int x, int y, unsigned char ink)
{
    memset(t->pixels + (y * WIDTH + x) * 4, ink, 4);
    t->drawn++;
}

int main(void)
{
    unsigned long sum = 0;
    for (int y = 0; y < DOWN; y++)
        for (int x = 0; x < ACROSS; x++)
            tiles[y * ACROSS + x] = tile_new(x, y);
    for (int i = 0; i < 2000000; i++) {
        int x = seeded(ACROSS * WIDTH), y = seeded(DOWN * HEIGHT);
        draw(tiles[y / HEIGHT * ACROSS + x / WIDTH], x % WIDTH, y % HEIGHT, i);
    }
    for (int i = 0; i < ACROSS * DOWN; i++)
        sum += tiles[i]->pixels[i % PIXELS] + tiles[i]->drawn;
    printf("%lu\n", sum);
    return 0;
}
