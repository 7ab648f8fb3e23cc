/*
 * kept.c: blocks that outlive the segments of a bounded recording.
 *
 * With an argument, the trace's path, it goes on in each of its four phases until a further segment has begun (a file with a new
 * number beside the trace), or so many as a second argument says; without one each phase is over at once. What lives at the end does not depend on that:
 *   early      400 blocks of 100, of which phase 2 releases every other one: 200 live, 20,000 bytes
 *   grown      100 blocks of 50, which phase 3 makes 70 by realloc in `grow`, in another thread: 100 live, 7,000 bytes
 *   second     300 blocks of 24, in a thread that ends before the next phase: 300 live, 7,200 bytes
 *   mapped     16 pages by mmap, of which phase 3 unmaps the sixth and seventh: 14 live
 *   last       10 blocks of 1000: 10 live, 10,000 bytes
 *   churn      two threads acquire and release, each what the other one acquired; nothing of it lives
 */
#include "check.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EARLY = 400, GROWN = 100, SECOND = 300, LAST = 10, PAGES = 16, TURNS = 400 };

static void *early_blocks[EARLY], *grown_blocks[GROWN], *second_blocks[SECOND], *last_blocks[LAST];

NOINLINE static void early(void)
{
    for (int n = 0; n < EARLY; n++)
        early_blocks[n] = must_malloc(100);
    NO_TAIL_CALL();
}

NOINLINE static void grown(void)
{
    for (int n = 0; n < GROWN; n++)
        grown_blocks[n] = must_malloc(50);
    NO_TAIL_CALL();
}

NOINLINE static void *grow(void *unused)
{
    for (int n = 0; n < GROWN; n++)
        CHECK((grown_blocks[n] = realloc(grown_blocks[n], 70)) != NULL);
    NO_TAIL_CALL();
    return unused;
}

NOINLINE static void *second(void *unused)
{
    for (int n = 0; n < SECOND; n++)
        second_blocks[n] = must_malloc(24);
    NO_TAIL_CALL();
    return unused;
}

NOINLINE static void last(void)
{
    for (int n = 0; n < LAST; n++)
        last_blocks[n] = must_malloc(1000);
    NO_TAIL_CALL();
}

NOINLINE static char *mapped(void)
{
    char *pages = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    memset(pages, 1, PAGES * 4096);
    return pages;
}

/* Blocks on their way from one thread to another. */
static _Atomic(void *) handed[64];

NOINLINE static void *churn(void *which)
{
    size_t from = which == NULL ? 0 : 7;
    for (size_t n = 0; n < TURNS; n++) {
        void *block = must_malloc(16 + (n * 31 + from) % 2000);
        OPAQUE(block);
        free(atomic_exchange(&handed[(n * 13 + from) % 64], block));
    }
    return NULL;
}

static void in_a_thread(void *(*what)(void *))
{
    pthread_t id;
    CHECK(pthread_create(&id, NULL, what, NULL) == 0);
    CHECK(pthread_join(id, NULL) == 0);
}

/* The largest number behind the trace's name, or -1. */
static long newest(const char *trace)
{
    char folder[4096];
    CHECK(strlen(trace) < sizeof folder);
    strcpy(folder, trace);
    char *slash = strrchr(folder, '/');
    CHECK(slash != NULL);
    *slash = '\0';
    const char *name = slash + 1;
    DIR *open = opendir(folder);
    CHECK(open != NULL);
    long most = -1;
    for (struct dirent *entry; (entry = readdir(open)) != NULL;) {
        size_t len = strlen(name);
        char *end;
        if (strncmp(entry->d_name, name, len) != 0 || entry->d_name[len] != '.')
            continue;
        long number = strtol(entry->d_name + len + 1, &end, 10);
        if (*end == '\0' && end != entry->d_name + len + 1 && number > most)
            most = number;
    }
    closedir(open);
    return most;
}

/* Churns until a further segment has begun; at most 5,000 times. */
static void go_on_once(const char *trace)
{
    long before = trace != NULL ? newest(trace) : 0;
    for (int turn = 0; turn < 5000; turn++) {
        pthread_t id;
        CHECK(pthread_create(&id, NULL, churn, &handed) == 0);
        churn(NULL);
        CHECK(pthread_join(id, NULL) == 0);
        for (int n = 0; n < 64; n++)
            free(atomic_exchange(&handed[n], NULL));
        if (trace == NULL || newest(trace) > before)
            return;
        usleep(10000); /* CLOCK: the folder is looked at again and again */
    }
    CHECK(!"a further segment");
}

static int segments = 1;

static void go_on(const char *trace)
{
    for (int n = 0; n < segments; n++)
        go_on_once(trace);
}

int main(int argc, char **argv)
{
    const char *trace = argc > 1 ? argv[1] : NULL;
    if (argc > 2)
        segments = atoi(argv[2]);
    early();
    grown();
    char *pages = mapped();
    go_on(trace);
    for (int n = 0; n < EARLY; n += 2)
        free(early_blocks[n]);
    in_a_thread(second);
    go_on(trace);
    in_a_thread(grow);
    CHECK(munmap(pages + 5 * 4096, 2 * 4096) == 0);
    go_on(trace);
    last();
    go_on(trace);
    say("kept ok\n");
    return 0;
}
