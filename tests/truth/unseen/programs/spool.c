/* Jobs that wait: a record of 1,060 to 1,200 bytes each, and each a block of its own, which the allocator rounds up.
 * Mended: records lie one behind the other in pages of 1 MiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { JOBS = 14000, PAGE = 1 << 20 };
struct record { unsigned job, length; unsigned char body[]; };
static struct record *queue[JOBS];
#ifdef MENDED
static unsigned char *page;
static size_t used = PAGE;
#endif

static struct record *spool_add(unsigned job, unsigned length)
{
    size_t size = sizeof(struct record) + length;
#ifdef MENDED
    if (used + size > PAGE) {
        page = malloc(PAGE);
        used = 0;
    }
    struct record *r = (struct record *)(page + used);
    used += size;
#else
    struct record *r = malloc(size);
#endif
    r->job = job;
    r->length = length;
    memset(r->body, job, length);
    return r;
}

int main(void)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < JOBS; i++)
        queue[i] = spool_add(i, 1052 + 4 * roll(36));
    skinflint_mark("spooled");
    for (int pass = 0; pass < 10; pass++)
        for (unsigned i = 0; i < JOBS; i++)
            for (unsigned k = 0; k < queue[i]->length; k += 16)
                sum += queue[i]->body[k] * (pass + 1);
    printf("%lu\n", sum);
    return 0;
}
