/*
 * limit.c: memory runs out (RLIMIT_AS 64 MiB above what is mapped at the start), three times over.
 *
 * Each time: small and large blocks until malloc says null with ENOMEM; realloc of a live block then says
 * the same and leaves it; calloc and posix_memalign say so; every block still holds its bytes; all are
 * freed, and the same amount can be had again. At least 32 MiB must have been had before the end.
 */
#include "check.h"

#include <sys/resource.h>

enum { MOST = 400000 };

static char *blocks[MOST];

static size_t size_of(int i, int round)
{
    return round == 0 ? 200 : round == 1 ? (size_t)(i % 50) * 500 + 1 : 100000 + (size_t)(i % 7) * 50000;
}

static int until_null(int round)
{
    int count = 0;
    for (; count < MOST; count++) {
        size_t size = size_of(count, round);
        errno = 0;
        blocks[count] = malloc(size);
        if (blocks[count] == NULL)
            break;
        memset(blocks[count], count, size);
    }
    CHECK(count < MOST && errno == ENOMEM);
    return count;
}

static void still_null(void)
{
    static void *(*volatile call_calloc)(size_t, size_t) = calloc;
    errno = 0;
    CHECK(realloc(blocks[0], 100 << 20) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(call_calloc(100 << 10, 1 << 10) == NULL && errno == ENOMEM);
    void *block = blocks;
    CHECK(posix_memalign(&block, 4096, 100 << 20) == ENOMEM && block == blocks);
}

static size_t mapped(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

int main(void)
{
    alarm(280);
    struct rlimit limit = {mapped() + (64 << 20), RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    int had[3] = {0};
    for (int time = 0; time < 2; time++)
        for (int round = 0; round < 3; round++) {
            int count = until_null(round);
            still_null();
            size_t bytes = 0;
            for (int i = 0; i < count; i++) {
                size_t size = size_of(i, round);
                CHECK(blocks[i][0] == (char)i && blocks[i][size - 1] == (char)i);
                free(blocks[i]);
                bytes += size;
            }
            if (bytes < 32 << 20 || count < had[round] * 9 / 10) {
                say("time %d, round %d: %zu bytes in %d blocks, before: %d\n", time, round, bytes, count, had[round]);
                return 1;
            }
            had[round] = count;
        }
    say("limit ok\n");
    return 0;
}
