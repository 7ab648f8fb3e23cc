/* A linker's table of symbols: 80 bytes each, of which 8 are three flags with their padding.
 * Mended: the flags lie in what the section number leaves free. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

struct symbol {
    struct symbol *next;
    uint64_t hash, value, size;
    char name[24];
    void *file;
#ifdef MENDED
    uint32_t section : 24, weak : 1, hidden : 1, used : 1;
    uint32_t version;
#else
    uint32_t section, version;
    unsigned char weak, hidden, used;
#endif
};
enum { COUNT = 250000, BUCKETS = 1 << 18 };
static struct symbol *buckets[BUCKETS];

static struct symbol *symbol_new(const char *name, uint64_t hash)
{
    struct symbol *s = calloc(1, sizeof *s);
    strcpy(s->name, name);
    s->hash = hash;
    s->next = buckets[hash % BUCKETS];
    return buckets[hash % BUCKETS] = s;
}

static struct symbol *find(const char *name)
{
    uint64_t hash = 1469598103934665603ull;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
    for (struct symbol *s = buckets[hash % BUCKETS]; s; s = s->next)
        if (s->hash == hash && !strcmp(s->name, name))
            return s;
    return symbol_new(name, hash);
}

int main(void)
{
    char name[24];
    unsigned long weak = 0;
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "fn_%u", i * 7);
        struct symbol *s = find(name);
        s->section = seeded(40);
        s->weak = seeded(2);
    }
    for (int i = 0; i < COUNT; i += 3) {
        snprintf(name, sizeof name, "fn_%u", i * 7);
        weak += find(name)->weak;
    }
    printf("%lu\n", weak);
    return 0;
}
