/* A control: a compiler's names lie in chunks that are never released while it runs. Each is looked at until the end.
 * To accuse it of a leak would be wrong: all of it is wanted, and it stops growing when the source has been read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { CHUNK = 65500, NAMES = 150000, BUCKETS = 1 << 17 };
struct atom { unsigned hash, uses; struct atom *next; char name[]; };
struct chunk { struct chunk *before; unsigned used; char bytes[CHUNK]; };
static struct chunk *newest;
static struct atom *buckets[BUCKETS];

static void *carve(unsigned bytes)
{
    bytes = (bytes + 7) & ~7u;
    if (!newest || newest->used + bytes > CHUNK) {
        struct chunk *c = malloc(sizeof *c);
        c->before = newest;
        c->used = 0;
        newest = c;
    }
    newest->used += bytes;
    return newest->bytes + newest->used - bytes;
}

static struct atom *atom_of(const char *name)
{
    unsigned hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 ^ *c;
    for (struct atom *a = buckets[hash % BUCKETS]; a; a = a->next)
        if (a->hash == hash && strcmp(a->name, name) == 0)
            return a;
    struct atom *a = carve(sizeof *a + strlen(name) + 1);
    *a = (struct atom){ hash, 0, buckets[hash % BUCKETS] };
    strcpy(a->name, name);
    return buckets[hash % BUCKETS] = a;
}

int main(void)
{
    unsigned long sum = 0;
    char name[64];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "module_%d_symbol_of_the_program_%d", i % 977, i);
        atom_of(name);
    }
    skinflint_mark("read");
    for (int pass = 0; pass < 4; pass++)
        for (int i = 0; i < NAMES; i++) {
            snprintf(name, sizeof name, "module_%d_symbol_of_the_program_%d", i % 977, i);
            sum += ++atom_of(name)->uses;
        }
    for (struct chunk *c = newest; c; c = newest) {
        newest = c->before;
        free(c);
    }
    printf("%lu\n", sum);
    return 0;
}
