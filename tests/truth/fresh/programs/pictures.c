/* A viewer that loads its pictures in one phase. Decoding needs a lookup table a picture, which is kept with the pixels though
 * nothing reads it afterwards. Mended: the table is released when the picture is decoded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "seeded.h"
#include "skinflint.h"

struct picture { int width, height; unsigned char *pixels; unsigned short *table; };
enum { PICTURES = 120, TABLE = 1 << 16 };

static unsigned short *table_build(int seed)
{
    unsigned short *table = malloc(TABLE * sizeof *table);
    for (int i = 0; i < TABLE; i++)
        table[i] = (unsigned short)(i * 40503u + seed);
    return table;
}

static void decode(struct picture *p, int seed)
{
    p->width = 200 + seeded(100);
    p->height = 200 + seeded(100);
    p->table = table_build(seed);
    p->pixels = malloc(p->width * p->height * 2);
    for (int i = 0; i < p->width * p->height * 2; i++)
        p->pixels[i] = p->table[(i * 31 + seed) % TABLE] >> 8;
#ifdef MENDED
    free(p->table);
    p->table = NULL;
#endif
}

int main(void)
{
    static struct picture pictures[PICTURES];
    unsigned long sum = 0;
    skinflint_mark("load begin");
    for (int i = 0; i < PICTURES; i++)
        decode(&pictures[i], i);
    skinflint_mark("load end");
    for (int i = 0; i < 300000; i++) {
        struct picture *p = &pictures[seeded(PICTURES)];
        sum += p->pixels[seeded(p->width * p->height)];
        char *line = malloc(64);
        sum += snprintf(line, 64, "frame %d", i);
        free(line);
    }
    skinflint_mark("serving");
    /* CLOCK: a program that goes on, at rest; nothing is judged by it */
    usleep(200000);
    printf("%lu\n", sum);
    return 0;
}
