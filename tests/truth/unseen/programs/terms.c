/* A control: an index of words of all lengths. Each is given a little more than it asked for, at another size each time; nobody
 * could choose the lengths better. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { TERMS = 120000, BUCKETS = 1 << 17 };
struct term { struct term *next; unsigned length, seen; char text[]; };
static struct term *buckets[BUCKETS];

static struct term *term_new(unsigned n, unsigned length)
{
    struct term *t = malloc(sizeof *t + length);
    t->length = length;
    t->seen = 0;
    for (unsigned i = 0; i < length; i++)
        t->text[i] = 'a' + (n >> i % 20) % 26;
    t->next = buckets[n % BUCKETS];
    return buckets[n % BUCKETS] = t;
}

int main(void)
{
    unsigned long sum = 0;
    for (unsigned n = 0; n < TERMS; n++)
        term_new(n, 8 + roll(480));
    skinflint_mark("indexed");
    for (int i = 0; i < 2000000; i++) {
        struct term *t = buckets[roll(TERMS)];
        sum += ++t->seen + t->text[i % t->length];
    }
    for (unsigned b = 0; b < BUCKETS; b++)
        for (struct term *t = buckets[b]; t; t = buckets[b]) {
            buckets[b] = t->next;
            free(t);
        }
    printf("%lu\n", sum);
    return 0;
}
