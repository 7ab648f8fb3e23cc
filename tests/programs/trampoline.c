/*
 * trampoline.c: an interpreter that calls each function through a trampoline of its own, as CPython does with
 * -X perf: code without unwind information, known byte by byte.
 *
 *   main ─► t0 ─► evaluate ─► t1 ─► evaluate ─► t2 ─► evaluate ─► malloc        100 x 701, kept
 *
 * t0 and t2 are `sub $8,%rsp; call *%rcx; add $8,%rsp; ret`, t1 keeps a frame pointer. With the argument `map` it
 * writes /tmp/perf-PID.map, in which they are py::outer, py::middle and py::inner of /srv/app.py; whoever asks for it
 * removes it. 100 live at the end, and no stack ends at a trampoline.
 */
#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>

typedef long evaluator(long depth, long one, long two);
typedef long trampoline(long depth, long one, long two, evaluator *);

static const unsigned char plain[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3};
static const unsigned char framed[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3};
static trampoline *functions[3];

NOINLINE static long evaluate(long depth, long one, long two)
{
    long sum = one + two;
    if (depth < 3) {
        sum += functions[depth](depth + 1, one, two, evaluate);
    } else {
        void *block = malloc(701);
        CHECK(block != NULL);
        memset(block, 1, 701);
    }
    return sum + 1;
}

static void write_map(unsigned char *page)
{
    static const char *const names[] = {"outer", "middle", "inner"};
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)getpid());
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    for (int i = 0; i < 3; i++)
        dprintf(file, "%lx b py::%s:/srv/app.py\n", (unsigned long)(page + 64 * i), names[i]);
    close(file);
}

int main(int count, char **arguments)
{
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    for (int i = 0; i < 3; i++) {
        unsigned char *at = page + 64 * i;
        if (i == 1)
            memcpy(at, framed, sizeof framed);
        else
            memcpy(at, plain, sizeof plain);
        memcpy(&functions[i], &at, sizeof at);
    }
    CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
    if (count > 1 && strcmp(arguments[1], "map") == 0)
        write_map(page);
    for (int i = 0; i < 100; i++)
        CHECK(evaluate(0, i, 1) == 4 * (i + 1) + 4);
    say("trampoline: 100 live\n");
    return 0;
}
