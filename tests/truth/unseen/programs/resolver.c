/* A resolver's cache of names. A record keeps the packet that it came in. When its time is over, the answer that replaces it is
 * hung into its place, and nobody releases the old one.
 * Mended: whoever replaces a record releases it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { NAMES = 1000, HOURS = 20, ASKED = 1500, PACKET = 1004 };
struct record { unsigned name, expires, length; unsigned char packet[PACKET]; };
typedef void (*answer_fn)(void *context, struct record *);
static struct record *cache[NAMES];
static unsigned now;

static struct record *record_new(unsigned name, unsigned length)
{
    struct record *r = malloc(sizeof *r);
    r->name = name;
    r->expires = now + 1;
    r->length = length;
    for (unsigned i = 0; i < PACKET; i++)
        r->packet[i] = i < length ? name * 7 + i : 0;
    return r;
}

static void upstream(unsigned name, answer_fn answer, void *context)
{
    answer(context, record_new(name, 80 + (name * 2654435761u >> 20) % 900));
}

static void keep(void *context, struct record *r)
{
    struct record **place = context;
#ifdef MENDED
    free(*place);
#endif
    *place = r;
}

static unsigned resolve(unsigned name)
{
    struct record **place = &cache[name];
    if (!*place || (*place)->expires <= now)
        upstream(name, keep, place);
    return (*place)->packet[name % (*place)->length];
}

int main(void)
{
    unsigned long sum = 0;
    for (now = 1; now <= HOURS; now++) {
        for (int i = 0; i < ASKED; i++)
            sum += resolve(roll(NAMES));
        char hour[16];
        snprintf(hour, sizeof hour, "hour %u", now);
        skinflint_mark(hour);
    }
    printf("%lu\n", sum);
    return 0;
}
