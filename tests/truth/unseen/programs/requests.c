/* A server reads requests into a block each. A request whose length is a lie is refused on a way out that releases nothing.
 * Mended: there is one way out, and it releases. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { REQUESTS = 60000, ROUTES = 4000, ROOM = 1008 };
struct request { unsigned length, said; char body[ROOM]; };
static unsigned served, refused;
static unsigned char *pages[ROUTES];

static struct request *receive(void)
{
    unsigned length = 300 + roll(700);
    struct request *r = malloc(sizeof *r);
    r->length = length;
    r->said = roll(5) ? length : length + 1;
    memset(r->body, 'x', length);
    return r;
}

static unsigned answer(const struct request *r)
{
    return pages[r->length % ROUTES][r->length % 1000];
}

static int handle(struct request *r)
{
    int ok = 0;
    if (r->said != r->length) {
        refused++;
#ifdef MENDED
        goto out;
#else
        return 0;
#endif
    }
    served++;
    ok = answer(r);
out:
    free(r);
    return ok;
}

int main(void)
{
    unsigned long sum = 0;
    for (int i = 0; i < ROUTES; i++) {
        pages[i] = malloc(1024);
        memset(pages[i], i, 1024);
    }
    for (int i = 1; i <= REQUESTS; i++) {
        sum += handle(receive());
        if (i % 6000 == 0) {
            char name[24];
            snprintf(name, sizeof name, "minute %d", i / 6000);
            skinflint_mark(name);
        }
    }
    printf("%lu %u %u\n", sum, served, refused);
    return 0;
}
