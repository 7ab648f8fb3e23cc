/*
 * pressure.c: what happens when the system refuses memory.
 *
 *   plain     limit, no listener, no reserve: null and ENOMEM, and all works again after frees
 *   listener  a listener that frees a cache: the call that was refused succeeds, no listener is in it twice
 *   reserve   a reserve: resident, released before anything fails, announced, and filled again later
 *   silly     sizes that no system has: null, and no listener hears of it
 *   cache     (in a memory cgroup of 64 MiB) a cache of 256 MiB in steps; `spare` listens, `greedy` does not
 *
 * The limit is the third argument: as (RLIMIT_AS) or data (RLIMIT_DATA, which counts what overcommit counts).
 */
#include "names.h"

#include <sys/resource.h>

enum { MIB = 1 << 20, MOST = 1024 };

static void *blocks[MOST];
static int count;

static void *cache[40];
static int depth, deepest, calls, levels[4];
static size_t last_wanted;

static long pages(int field)
{
    long value[2] = {0};
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &value[0], &value[1]) == 2);
    fclose(file);
    return value[field] * 4096;
}

static long now_limited(int resource)
{
    if (resource == RLIMIT_AS)
        return pages(0);
    long kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "VmData:", 7))
            kib = atol(line + 7);
    fclose(file);
    return kib * 1024;
}

static void limit_to(int resource, long more)
{
    struct rlimit limit;
    CHECK(getrlimit(resource, &limit) == 0);
    limit.rlim_cur = more < 0 ? limit.rlim_max : (rlim_t)(now_limited(resource) + more);
    CHECK(setrlimit(resource, &limit) == 0);
}

static int take_until_refused(void)
{
    int before = count;
    while (count < MOST) {
        errno = 0;
        void *block = malloc(MIB);
        if (!block) {
            CHECK(errno == ENOMEM);
            return count - before;
        }
        memset(block, 1, MIB);
        blocks[count++] = block;
    }
    CHECK(!"refused at last");
    return 0;
}

static void give_all(void)
{
    while (count > 0)
        free(blocks[--count]);
}

static void hear(void *context, int level, size_t wanted)
{
    CHECK(context == cache);
    calls++;
    levels[level]++;
    last_wanted = wanted;
    if (++depth > deepest)
        deepest = depth;
    /* Out of memory once more, within: null, and not from the beginning. */
    CHECK(malloc(1L << 34) == NULL);
    for (int i = 0; i < 40; i++) {
        free(cache[i]);
        cache[i] = NULL;
    }
    depth--;
}

static void plain(int resource)
{
    limit_to(resource, 100L * MIB);
    int first = take_until_refused();
    CHECK(first >= 60 && first <= 105);
    CHECK(figure("refusals") == 1 && figure("failures") == 1);
    give_all();
    int second = take_until_refused();
    CHECK(second >= first);
    give_all();
}

static void listener(int resource)
{
    for (int i = 0; i < 40; i++)
        memset(cache[i] = malloc(MIB), 2, MIB);
    CHECK(CALL(skinflint_on_pressure)(hear, cache) == 1);
    limit_to(resource, 50L * MIB);
    int taken = take_until_refused();
    /* The first refusal brings 40 more, the second nothing. */
    CHECK(taken >= 20 + 40);
    CHECK(calls == 2 && deepest == 1 && last_wanted == MIB);
    CHECK(levels[SKINFLINT_PRESSURE_CRITICAL] == 2);
    CHECK(figure("listener_calls") == 2);
    CHECK(CALL(skinflint_off_pressure)(hear, cache) == 1);
    CHECK(CALL(skinflint_off_pressure)(hear, cache) == 0);
    CHECK(malloc(MIB) == NULL && calls == 2);
    give_all();
    for (int i = 0; i < 32; i++)
        CHECK(CALL(skinflint_on_pressure)(hear, cache) == 1);
    CHECK(CALL(skinflint_on_pressure)(hear, cache) == 0);
}

static void reserve(int resource)
{
    long before = pages(1);
    CHECK(CALL(skinflint_set_reserve)(32L * MIB) == 1);
    CHECK(pages(1) >= before + 32L * MIB);
    CHECK(figure("reserve_bytes") == 32L * MIB);
    CHECK(CALL(skinflint_on_pressure)(hear, cache) == 1);
    limit_to(resource, 40L * MIB);
    int taken = take_until_refused();
    CHECK(taken >= 20 + 31);
    CHECK(levels[SKINFLINT_PRESSURE_RESERVE] == 1 && levels[SKINFLINT_PRESSURE_CRITICAL] == 1);
    CHECK(figure("reserve_releases") == 1 && figure("reserve_bytes") == 0);
    give_all();
    limit_to(resource, -1);
    for (int tenths = 0; figure("reserve_bytes") != 32L * MIB; tenths++) {
        CHECK(tenths < 300);
        /* CLOCK: poll step of a bounded wait */
        usleep(100000);
    }
    CHECK(CALL(skinflint_set_reserve)(0) == 1);
    CHECK(figure("reserve_bytes") == 0);
}

static void silly(void)
{
    CHECK(CALL(skinflint_on_pressure)(hear, cache) == 1);
    CHECK(CALL(skinflint_set_reserve)(MIB) == 1);
    size_t sizes[] = {(size_t)-1, (size_t)-1 / 2, 1UL << 60, 1UL << 40};
    for (int i = 0; i < 4; i++)
        CHECK(malloc(sizes[i]) == NULL && errno == ENOMEM);
    void *block = malloc(100);
    CHECK(realloc(block, 1UL << 45) == NULL);
    CHECK(calls == 0 && figure("reserve_bytes") == MIB);
}

/* Frees the older half of what is cached. */
static void spare(void *context, int level, size_t wanted)
{
    (void)context;
    (void)wanted;
    levels[level]++;
    for (int i = 0; i < count / 2; i++)
        free(blocks[i]);
    memmove(blocks, blocks + count / 2, (count - count / 2) * sizeof blocks[0]);
    count -= count / 2;
}

static void fill_cache(int listens)
{
    if (listens)
        CHECK(CALL(skinflint_on_pressure)(spare, NULL) == 1);
    for (int i = 0; i < 256; i++) {
        void *block = malloc(MIB);
        CHECK(block);
        memset(block, 3, MIB);
        blocks[count++] = block;
    }
    CHECK(!listens || levels[SKINFLINT_PRESSURE_NEAR] > 0);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int resource = argc > 2 && !strcmp(argv[2], "data") ? RLIMIT_DATA : RLIMIT_AS;
    if (!strcmp(what, "plain"))
        plain(resource);
    else if (!strcmp(what, "listener"))
        listener(resource);
    else if (!strcmp(what, "reserve"))
        reserve(resource);
    else if (!strcmp(what, "silly"))
        silly();
    else if (!strcmp(what, "cache"))
        fill_cache(argc > 2 && !strcmp(argv[2], "spare"));
    else
        return 97;
    puts("ok");
    return 0;
}
