/* A decoder's pool of pixel buffers: the last 32 are kept, and one is used again if it has exactly the size that is wanted,
 * which pictures of all sizes never have. Mended: any that is large enough is used again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

struct buffer { unsigned char *bytes; size_t size; };
enum { POOL = 32, PICTURES = 4000, LARGEST = 110000 };
static struct buffer pool[POOL];
static int oldest;

static struct buffer pool_take(size_t size)
{
    for (int i = 0; i < POOL; i++)
#ifdef MENDED
        if (pool[i].bytes && pool[i].size >= size) {
#else
        if (pool[i].bytes && pool[i].size == size) {
#endif
            struct buffer found = pool[i];
            pool[i].bytes = NULL;
            return found;
        }
#ifdef MENDED
    size = LARGEST;
#endif
    return (struct buffer){malloc(size), size};
}

static void pool_give(struct buffer b)
{
    for (int i = 0; i < POOL; i++)
        if (!pool[i].bytes) {
            pool[i] = b;
            return;
        }
    free(pool[oldest].bytes);
    pool[oldest] = b;
    oldest = (oldest + 1) % POOL;
}

int main(void)
{
    unsigned long sum = 0;
    unsigned char *album = malloc(5 << 20);
    memset(album, 3, 5 << 20);
    for (int i = 0; i < PICTURES; i++) {
        size_t size = 70001 + seeded(40000 - 1);
        struct buffer b = pool_take(size);
        memset(b.bytes, i, size);
        sum += b.bytes[seeded(size)] + album[seeded(5 << 20)];
        pool_give(b);
    }
    printf("%lu\n", sum);
    return 0;
}
