/*
 * hungry.c: takes memory until its control group has none left.
 *
 *   hungry PROCS MIB FILE     moves itself into the group of the file PROCS (cgroup.procs), takes MIB mebibytes in `eats`, block by
 *                             block of one mebibyte, and writes all of them; says "full"; waits for FILE, a minute at most; then
 *                             takes on, and is killed. At 1 GiB it gives up: then there is no limit. By itself it takes 4 MiB.
 */
#include "check.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, MOST = 1024 };

NOINLINE static void eats(long from, long to)
{
    for (long n = from; n < to; n++) {
        void *block = must_malloc(MIB);
        memset(block, (int)n | 1, MIB);
        OPAQUE(block);
    }
    NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        eats(0, 4);
        say("hungry ok\n");
        return 0;
    }
    int procs = open(argv[1], O_WRONLY);
    CHECK(procs >= 0 && write(procs, "0\n", 2) == 2 && close(procs) == 0);
    long full = atol(argv[2]);
    eats(0, full);
    say("full\n");
    for (int n = 0; access(argv[3], F_OK) != 0; n++) {
        CHECK(n < 6000);
        struct timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, NULL); /* CLOCK: the step of a bounded wait */
    }
    eats(full, MOST);
    say("there is no limit\n");
    return 1;
}
