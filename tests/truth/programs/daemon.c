/* A daemon after its busiest hour: TURNS times much was held, nearly all is released, and it goes on with little. Planted: free
 * pages stay. Mended: malloc_trim, or what `env` says. */
#include "skinflint.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__attribute__((noinline)) static void *request(size_t bytes)
{
    void *it = malloc(bytes);
    memset(it, 1, bytes);
    return it;
}

static void *volatile log_of[TURNS];

static void busy(int turn)
{
    enum { MANY = 24000 };
    static void *held[MANY];
    for (int i = 0; i < MANY; i++)
        held[i] = request(100 + i * 53 % 1100);
    log_of[turn] = request(500);
    for (int i = 0; i < MANY; i++)
        free(held[i]);
}

int main(void)
{
    for (int i = 0; i < TURNS; i++)
        busy(i);
#if defined MENDED && !defined BY_CONF
    malloc_trim(0);
#endif
    for (int i = 0; i < 60; i++) {
        /* CLOCK: the daemon has nothing to do for a while; nothing is judged by how long that takes. */
        struct timespec rest = {0, 15000000};
        nanosleep(&rest, 0);
        if (i == 40)
            skinflint_mark("quiet");
        free(request(700));
    }
    for (int i = 0; i < 3000; i++)
        free(request(700));
    return 0;
}
