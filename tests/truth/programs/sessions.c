/* Of 32 blocks one is a session, which stays; the others are gone soon. Planted: they lie among each other. Mended: the
 * sessions are in one array, and malloc_trim gives back what is free, as the advice says. */
#include "skinflint.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
enum { MANY = COUNT / 32 };
static char *sessions[MANY], *passing[COUNT];

__attribute__((noinline)) static char *session(int number)
{
#ifdef MENDED
    static char *all;
    if (!all)
        all = malloc((size_t)MANY * BYTES);
    char *it = all + (size_t)number * BYTES;
#else
    char *it = malloc(BYTES);
#endif
    memset(it, 1, BYTES);
    return it;
}

__attribute__((noinline)) static char *answer(void)
{
    char *it = malloc(BYTES);
    memset(it, 1, BYTES);
    return it;
}

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        if (i % 32 == 0)
            sessions[i / 32] = session(i / 32);
        else
            passing[i] = answer();
    }
    for (int i = 0; i < COUNT; i++)
        free(passing[i]);
#ifdef MENDED
    malloc_trim(0);
#endif
    /* CLOCK: the program is to be at rest for a while; nothing is judged by how long that takes. */
    struct timespec rest = {0, 400000000};
    nanosleep(&rest, 0);
    skinflint_mark("rest");
    /* CLOCK: as above. */
    nanosleep(&rest, 0);
    for (int i = 0; i < COUNT / 2; i++)
        free(answer());
    return 0;
}
