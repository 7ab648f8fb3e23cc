/* A broker gives each connection two buffers of 48 KiB; its messages have some hundred bytes.
 * Mended: buffers of 2 KiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "seeded.h"

#ifdef MENDED
enum { BUFFER = 2048 };
#else
enum { BUFFER = 48 * 1024 };
#endif
enum { CONNECTIONS = 450 };
struct connection { int peer; char *in, *out; size_t in_used, out_used; };

static struct connection *conn_open(int peer)
{
    struct connection *c = malloc(sizeof *c);
    *c = (struct connection){peer, malloc(BUFFER), malloc(BUFFER), 0, 0};
    return c;
}

int main(void)
{
    static struct connection *all[CONNECTIONS];
    unsigned long sum = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        all[i] = conn_open(i);
    for (int turn = 0; turn < 200000; turn++) {
        struct connection *c = all[seeded(CONNECTIONS)];
        c->in_used = 100 + seeded(700);
        memset(c->in, turn, c->in_used);
        c->out_used = snprintf(c->out, BUFFER, "ack %d %zu", turn, c->in_used);
        sum += c->in[c->in_used / 2] + c->out_used;
    }
    /* CLOCK: a program that goes on, at rest; nothing is judged by it */
    usleep(200000);
    printf("%lu\n", sum);
    return 0;
}
