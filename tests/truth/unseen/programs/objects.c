/* An object store keeps each object's name as text: 40 digits, and a zero behind them that nobody needs.
 * Mended: the zero is left out; whoever prints a name says how long it is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { OBJECTS = 180000, DIGITS = 40, BUCKETS = 1 << 16 };
static char *names[OBJECTS];
static unsigned heads[BUCKETS], nexts[OBJECTS + 1];

static char *name_text(const unsigned char raw[20])
{
#ifdef MENDED
    char *text = malloc(DIGITS);
#else
    char *text = malloc(DIGITS + 1);
    text[DIGITS] = 0;
#endif
    for (int i = 0; i < DIGITS; i++)
        text[i] = "0123456789abcdef"[raw[i / 2] >> (i % 2 ? 0 : 4) & 15];
    return text;
}

static unsigned bucket_of(const char *name)
{
    unsigned h = 0;
    for (int i = 0; i < DIGITS; i++)
        h = h * 31 + name[i];
    return h % BUCKETS;
}

static int look_up(const char *name)
{
    for (unsigned i = heads[bucket_of(name)]; i; i = nexts[i])
        if (memcmp(names[i - 1], name, DIGITS) == 0)
            return i;
    return 0;
}

int main(void)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < OBJECTS; i++) {
        unsigned char raw[20];
        for (int k = 0; k < 20; k++)
            raw[k] = roll(256);
        names[i] = name_text(raw);
        unsigned b = bucket_of(names[i]);
        nexts[i + 1] = heads[b];
        heads[b] = i + 1;
    }
    skinflint_mark("indexed");
    for (int i = 0; i < 300000; i++)
        sum += look_up(names[roll(OBJECTS)]);
    printf("%lu %.40s\n", sum, names[OBJECTS / 2]);
    return 0;
}
