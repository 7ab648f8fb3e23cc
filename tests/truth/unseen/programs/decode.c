/* Two threads decode a film's frames into many small blocks and end. What they made is released, but for a note behind it,
 * and the allocator keeps the rest.
 * Mended: when the work is done the free memory is given back. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { THREADS = 2, PIECES = 9000, LINE = 1536 };
struct work { unsigned long sum; unsigned char *pieces[PIECES]; char *note; };
static struct work works[THREADS];

static unsigned char *piece(unsigned seed)
{
    unsigned char *p = malloc(LINE);
    for (int i = 0; i < LINE; i++)
        p[i] = seed * 31 + i;
    return p;
}

static void *decode(void *context)
{
    struct work *w = context;
    for (unsigned i = 0; i < PIECES; i++)
        w->pieces[i] = piece(i);
    for (unsigned i = 1; i < PIECES; i++)
        w->sum += w->pieces[i][i % LINE] ^ w->pieces[i - 1][i % LINE];
    w->note = strdup("all frames of this part have been decoded, and none is missing");
    for (unsigned i = 0; i < PIECES; i++)
        free(w->pieces[i]);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    unsigned long sum = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, decode, &works[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += works[i].sum + strlen(works[i].note);
    }
#ifdef MENDED
    malloc_trim(0);
#endif
    skinflint_mark("idle");
    for (volatile unsigned i = 0; i < 100000000; i++)
        ;
    printf("%lu\n", sum);
    return 0;
}
