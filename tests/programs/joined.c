/*
 * joined.c: 13 MiB of its own at the place below which a library that is loaded later comes to lie.
 *
 *   hole    as large as the stack that calls are made on while the library is loaded
 *   fence   a page that nobody may touch
 *   own     13 MiB, all touched
 *   ...     here the kernel maps the library, whose bss it joins with `own`
 *
 * It answers with its process id, and ends by the end of stdin.
 */
#include "check.h"

#include <sys/mman.h>

enum { PAGE = 4096, HOLE = 256 << 10, OWN = 13 << 20 };

static char *map(size_t bytes, int rights)
{
    char *at = mmap(NULL, bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

int main(void)
{
    char *above = map(HOLE + PAGE, PROT_NONE);
    char *own = map(OWN, PROT_READ | PROT_WRITE);
    memset(own, 1, OWN);
    CHECK(munmap(above + PAGE, HOLE) == 0);
    say("%d\n", getpid());
    char end;
    while (read(0, &end, 1) > 0)
        continue;
    return 0;
}
