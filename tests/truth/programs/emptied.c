/* Nearly all is released, and the program goes on. Planted: free pages stay. Mended: malloc_trim gives them back (or,
 * where MALLOC_CONF does it, nothing). EXIT: a control, which ends at once. SURVIVORS: one block of so many stays. */
#include "skinflint.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static void *volatile kept[COUNT];
static void *volatile last;

__attribute__((noinline)) static void *page(void)
{
    void *it = malloc(BYTES);
    memset(it, 1, BYTES);
    return it;
}

int main(void)
{
    for (int i = 0; i < COUNT; i++)
        kept[i] = page();
    last = page();
    for (int i = 0; i < COUNT; i++)
#ifdef SURVIVORS
        if (i % SURVIVORS)
#endif
            free(kept[i]);
#ifdef EXIT
    return 0;
#else
#if defined MENDED && !defined BY_CONF
    malloc_trim(0);
#endif
    /* CLOCK: the program is to be at rest for a while; nothing is judged by how long that takes. */
    struct timespec rest = {0, 400000000};
    nanosleep(&rest, 0);
    skinflint_mark("rest");
    /* CLOCK: as above. */
    nanosleep(&rest, 0);
    for (int i = 0; i < COUNT / 5; i++)
        free(page());
    return 0;
#endif
}
