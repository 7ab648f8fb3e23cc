/*
 * tops.c: free memory at the ends of arenas, of which malloc_trim(0) gives back some and leaves some.
 *
 * One thread for each letter of the argument (default: all), each with an arena of its own, one after the other. Each fills
 * its arena from the bottom, writes all, frees, and then lives on and takes nothing. What glibc holds back for a thread
 * (tcache) is the first seven blocks of a size that it frees.
 *
 *   a  8 MiB of 1,000 bytes, freed from the last to the first: seven at the top are held back, 8 MiB below them go
 *   b  8 MiB of 1,000 bytes, freed from the first to the last: seven at the bottom are held back, 8 MiB are the topmost
 *      chunk and stay
 *   c  8 MiB of 100 bytes (fast bins), freed from the last to the first: as a
 *   d  8 MiB of 100 bytes, freed from the first to the last: in fast bins until malloc_trim joins them to the topmost
 *      chunk, so they stay
 *   e  72 MiB of 16,384 bytes, which fill a heap of 64 MiB and begin another; all freed but the last: the first heap's go
 *   f  8 MiB of 1,000 bytes, of which every 64th is kept, and all of the upper half but its first are freed: below that one
 *      what lies between the kept goes (nearly all of 4 MiB), above it all stays
 *
 * m, in the main thread: 8 MiB of 1,000 bytes, all freed but the first: all go, except a page at each end of it.
 * At first a block of 31 MiB is taken and freed: from then on the ends of arenas do not go by themselves (glibc raises the
 * threshold to twice that). Marks: "before", "after"; between them nothing is done but malloc_trim(0).
 *
 * A second argument, "late": the parent, which records this program, is stopped before the first mark, and goes on 0.6 s
 * later.
 */
#include "check.h"
#include "skinflint.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define MOST 90000
#define MIB (1 << 20)

static pthread_barrier_t done;

static size_t fill(void **blocks, size_t bytes, size_t size)
{
    /* As many chunks as fit: a block, 8 bytes of header, to a multiple of 16. */
    size_t count = bytes / ((size + 8 + 15) / 16 * 16);
    CHECK(count <= MOST);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = must_malloc(size);
        memset(blocks[i], 1, size);
    }
    return count;
}

static void free_up(void **blocks, size_t from, size_t to, size_t but)
{
    for (size_t i = from; i < to; i++)
        if (but == 0 || i % but != 0)
            free(blocks[i]);
}

static void free_down(void **blocks, size_t count)
{
    while (count-- > 0)
        free(blocks[count]);
}

static void work(char kind)
{
    /* Not in an arena: what is taken there is predicted. */
    static void *blocks[MOST];
    size_t count;
    switch (kind) {
    case 'a':
        free_down(blocks, fill(blocks, 8 * MIB, 1000));
        break;
    case 'b':
        free_up(blocks, 0, fill(blocks, 8 * MIB, 1000), 0);
        break;
    case 'c':
        free_down(blocks, fill(blocks, 8 * MIB, 100));
        break;
    case 'd':
        free_up(blocks, 0, fill(blocks, 8 * MIB, 100), 0);
        break;
    case 'e':
        free_up(blocks, 0, fill(blocks, 72 * MIB, 16384) - 1, 0);
        break;
    case 'f':
        count = fill(blocks, 8 * MIB, 1000);
        free_up(blocks, 0, count / 2, 64);
        free_up(blocks, count / 2 + 1, count, 0);
        break;
    case 'm':
        free_up(blocks, 1, fill(blocks, 8 * MIB, 1000), 0);
        break;
    default:
        CHECK(!"a letter that means nothing");
    }
}

static void *thread(void *kind)
{
    work(*(char *)kind);
    pthread_barrier_wait(&done);
    /* It lives, and so does its cache, until the program ends. */
    for (;;)
        pause();
    return NULL;
}

/* Stops the parent until a child of ours lets it go on. */
static void stop_parent(void)
{
    pid_t parent = getppid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        usleep(600 * 1000); // CLOCK: how late it is; what is told must not depend on it
        kill(parent, SIGCONT);
        _exit(0);
    }
    CHECK(kill(parent, SIGSTOP) == 0);
}

int main(int count, char **words)
{
    char all[] = "abcdefm", *kinds = count > 1 ? words[1] : all;
    free(must_malloc(31 * MIB));
    CHECK(pthread_barrier_init(&done, NULL, 2) == 0);
    for (char *kind = kinds; *kind; kind++) {
        pthread_t id;
        if (*kind == 'm') {
            work(*kind);
            continue;
        }
        CHECK(pthread_create(&id, NULL, thread, kind) == 0);
        pthread_barrier_wait(&done);
    }
    if (count > 2 && strcmp(words[2], "late") == 0)
        stop_parent();
    skinflint_mark("before");
    malloc_trim(0);
    skinflint_mark("after");
    say("tops: %s\n", kinds);
    return 0;
}
