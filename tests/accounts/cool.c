/*
 * cool.c: cold live pages are told of on request, and stay what they are.
 *
 *   cool          bytes, errors, contents
 *   cool swap     the same where there is a swap with room: what is paged out leaves memory, and comes back
 *
 * Not here: which pages are cold, page by page (engines/alloc/tests/cold.rs).
 */
#include "names.h"

enum { BLOCKS = 200000, BYTES = 200 };
static unsigned char *blocks[BLOCKS];

static unsigned char content(int block, int at)
{
    return (unsigned char)((block * 2654435761u >> 13) + at * 7);
}

static long status_kb(const char *name)
{
    char line[256];
    long kb = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status);
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, name, strlen(name)))
            kb = atol(line + strlen(name) + 1);
    fclose(status);
    return kb;
}

static void check_contents(void)
{
    for (int i = 0; i < BLOCKS; i++)
        for (int at = 0; at < BYTES; at += 13)
            CHECK(blocks[i][at] == content(i, at));
}

int main(int argc, char **argv)
{
    int swap = argc > 1 && !strcmp(argv[1], "swap");
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        CHECK(blocks[i]);
        for (int at = 0; at < BYTES; at++)
            blocks[i][at] = content(i, at);
    }
    long all = (long)BLOCKS * BYTES;
    for (int how = 4; how < 256; how *= 2) {
        errno = 0;
        CHECK(CALL(skinflint_cool)(how) == -1 && errno == EINVAL);
    }
    CHECK(CALL(skinflint_cool)(0) == 0);
    long cold = CALL(skinflint_cool)(0);
    CHECK(cold > all / 10 * 9 && cold < all / 10 * 12);
    CHECK(CALL(skinflint_cool)(SKINFLINT_PAGE_OUT) == cold);
    long out_kb = status_kb("VmSwap:");
    if (swap)
        CHECK(out_kb > cold / 1024 / 10 * 9);
    check_contents();
    if (swap)
        CHECK(status_kb("VmSwap:") < out_kb / 10);
    CHECK(CALL(skinflint_cool)(SKINFLINT_PAGE_OUT | SKINFLINT_LARGE_TOO) >= cold);
    check_contents();
    if (swap)
        printf("%ld KiB told of, %ld KiB swapped out, all back\n", cold / 1024, out_kb);
    else
        puts("ok");
    return 0;
}
