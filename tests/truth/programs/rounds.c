/* Requests between marks. Planted: each keeps KEEP blocks of BYTES. Mended: it releases them. NAMES: 0 numbered, 1 all the
 * same, 2 of different words. STORE: a control, which keeps the blocks of its last STORE requests. */
#include "skinflint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *volatile kept[ROUNDS * KEEP];
static void *volatile before[4000];

__attribute__((noinline)) static void *keep(void)
{
    void *it = malloc(BYTES);
    memset(it, 1, BYTES);
    return it;
}

__attribute__((noinline)) static void *passing(size_t bytes)
{
    void *it = malloc(bytes);
    memset(it, 1, bytes);
    return it;
}

static void mark(int round, const char *what)
{
    char name[64];
#if NAMES == 0
    snprintf(name, sizeof name, "request %d %s", round, what);
#elif NAMES == 1
    snprintf(name, sizeof name, "request %s", what);
#else
    snprintf(name, sizeof name, "page %c%c%c %s", 'a' + round % 26, 'a' + round / 26 % 26, 'a' + round / 676, what);
#endif
    skinflint_mark(name);
}

int main(void)
{
    for (int i = 0; i < 4000; i++)
        before[i] = passing(1000);
    for (int round = 0; round < ROUNDS; round++) {
        void *work[10];
        mark(round, "begin");
        for (int i = 0; i < 10; i++)
            work[i] = passing(3000 + i);
        for (int i = 0; i < KEEP; i++)
            kept[round * KEEP + i] = keep();
        for (int i = 0; i < 10; i++)
            free(work[i]);
#ifdef MENDED
        for (int i = 0; i < KEEP; i++)
            free(kept[round * KEEP + i]);
#endif
        mark(round, "end");
#ifdef STORE
        for (int i = 0; round >= STORE && i < KEEP; i++)
            free(kept[(round - STORE) * KEEP + i]);
#endif
    }
    return 0;
}
