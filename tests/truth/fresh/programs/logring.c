/* Control. The last 8,192 log lines are kept, each a block of its own length; the oldest goes when a new one comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

enum { RING = 8192, LINES = 120000 };
static char *ring[RING];

static void log_line(int n)
{
    size_t length = 200 + seeded(1800);
    char *line = malloc(length);
    memset(line, ' ' + n % 60, length);
    snprintf(line, length, "%08d level=%u", n, seeded(5));
    free(ring[n % RING]);
    ring[n % RING] = line;
}

int main(void)
{
    unsigned long sum = 0;
    for (int n = 0; n < LINES; n++) {
        log_line(n);
        if (n % 16 == 0)
            for (int i = 0; i < 20; i++) {
                char *line = ring[seeded(RING)];
                sum += line ? line[7] : 0;
            }
    }
    printf("%lu\n", sum);
    return 0;
}
