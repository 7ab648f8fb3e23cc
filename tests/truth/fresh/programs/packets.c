/* Control. Received packets are kept at their length: nearly all are a little longer than 512 bytes, and no two alike by rule. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

enum { PACKETS = 40000 };
struct packet { unsigned length; unsigned char *bytes; };

static void receive(struct packet *p)
{
    p->length = 514 + seeded(110);
    p->bytes = malloc(p->length);
    memset(p->bytes, p->length, p->length);
}

int main(void)
{
    struct packet *all = calloc(PACKETS, sizeof *all);
    unsigned long sum = 0;
    for (int i = 0; i < PACKETS; i++)
        receive(&all[i]);
    for (int i = 0; i < 2000000; i++) {
        struct packet *p = &all[seeded(PACKETS)];
        sum += p->bytes[seeded(p->length)];
    }
    printf("%lu\n", sum);
    return 0;
}
