/* Without marks. Planted: each round keeps a block of BYTES. Mended: it releases it. STORE: a control, as in rounds.c. */
#include <stdlib.h>
#include <string.h>
static void *volatile kept[ROUNDS];
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

int main(void)
{
    for (int i = 0; i < 4000; i++)
        before[i] = passing(1000);
    for (int round = 0; round < ROUNDS; round++) {
        void *work[10];
        for (int i = 0; i < 10; i++)
            work[i] = passing(3000 + i);
        kept[round] = keep();
        for (int i = 0; i < 10; i++)
            free(work[i]);
#ifdef MENDED
        free(kept[round]);
#endif
#ifdef STORE
        if (round >= STORE)
            free(kept[round - STORE]);
#endif
    }
    return 0;
}
