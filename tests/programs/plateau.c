/*
 * plateau.c [exit | unmarked]: resident memory that stays when its blocks are gone, and grows by a little.
 *
 * 40,000 x 1000 are taken and written, then one block that keeps the top of the heap; mark "full".
 * The 40,000 are freed: glibc keeps their pages. 50 pages (200 KiB, half a percent) are mapped and
 * written, so that most is resident now; mark "freed". Without an argument the program rests for half of the
 * time that it took so far and 200 ms, so that what it keeps is not on its way out; then 4,000 x 1000 are taken and
 * written again, in the same pages: the program goes on; with "exit" it ends. With "unmarked" there are no
 * marks: nothing stops it between the last block that it takes and the first that it frees.
 */
#include "check.h"
#include "skinflint.h"

#include <sys/mman.h>
#include <time.h>

static char *blocks[40000];

NOINLINE static void fill(int count)
{
    for (int i = 0; i < count; i++) {
        blocks[i] = must_malloc(1000);
        memset(blocks[i], 1, 1000);
    }
}

/* Rests for half of the time since `start`, and 200 ms. */
static void rest_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long ms = (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
    ms = ms / 2 + 200;
    struct timespec rest = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&rest, NULL); // CLOCK: the program rests, longer than the report takes for its end; nothing waits for it
}

int main(int argc, char **argv)
{
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    size_t more = 50 * 4096;
    int ends = argc > 1 && strcmp(argv[1], "exit") == 0;
    int marks = argc <= 1 || strcmp(argv[1], "unmarked") != 0;
    fill(40000);
    memset(must_malloc(5000), 1, 5000);
    if (marks)
        skinflint_mark("full");
    for (int i = 0; i < 40000; i++)
        free(blocks[i]);
    char *page = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    memset(page, 1, more);
    if (marks)
        skinflint_mark("freed");
    if (!ends) {
        rest_since(&start);
        fill(4000);
    }
    say("plateau: %s\n", ends ? "exit" : "on");
    return 0;
}
