/* Control: a cache of LIMIT entries of any length, of which the oldest makes room; hits move to the front. Twice as many
 * keys as entries, so that it goes on for ever. */
#include <stdlib.h>
#include <string.h>
struct entry {
    struct entry *newer, *older;
    unsigned key;
    char text[];
};
static struct entry *by_key[2 * LIMIT];
static struct entry ends = {&ends, &ends};
static int many;

__attribute__((noinline)) static struct entry *entry(unsigned key, size_t length)
{
    struct entry *it = malloc(sizeof *it + length);
    it->key = key;
    memset(it->text, 1, length);
    return it;
}

static void out(struct entry *it)
{
    it->newer->older = it->older;
    it->older->newer = it->newer;
}

static void in(struct entry *it)
{
    it->newer = &ends;
    it->older = ends.older;
    ends.older->newer = it;
    ends.older = it;
}

int main(void)
{
    unsigned seed = 7;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525 + 1013904223;
        unsigned key = (seed >> 8) % (2 * LIMIT);
        struct entry *it = by_key[key];
        if (it)
            out(it);
        else
            it = by_key[key] = entry(key, 40 + (seed >> 12) % 700), many++;
        in(it);
        if (many > LIMIT) {
            struct entry *oldest = ends.newer;
            out(oldest);
            by_key[oldest->key] = 0;
            free(oldest);
            many--;
        }
    }
    return 0;
}
