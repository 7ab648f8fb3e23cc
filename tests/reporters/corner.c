/*
 * corner.c: what dark matter is: blocks that a reporter names, that none does, that two do, and half of some.
 *
 *     corner mark         names the moment "full", and ends when stdin does
 *     corner end          ends at once, with all of it live and its socket open
 *     corner dark         the same as mark, with no reporter and no socket
 *
 * Predicted by hand, in bytes by malloc_usable_size under glibc (16-byte steps, 8 bytes of which are a header):
 *     named     10 blocks of malloc(1000)    1,000 each    explicit/named
 *     dark       7 blocks of malloc(3000)    3,000 each    nobody
 *     twice      5 blocks of malloc(2000)    2,008 each    explicit/owner and explicit/user
 *     halves     4 blocks of malloc(4000)    4,008 each    explicit/halves: the first 2,000 bytes of each
 *     inside     3 blocks of malloc(6000)    6,008 each    explicit/inside: by an address within
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skinflint.h"
#include "skinflint_report.h"

/* Found at run time, in what is preloaded. A program of one's own links with -lskinflint_report. */
#pragma weak skinflint_report_error
#pragma weak skinflint_reporter_add
#pragma weak skinflint_report_line
#pragma weak skinflint_report_block
#pragma weak skinflint_report_inside
#pragma weak skinflint_report_range
#pragma weak skinflint_report_wants_blocks
#pragma weak skinflint_memory_open

static void *named[10], *dark[7], *twice[5], *halves[4], *inside[3];

#define FILL(name, bytes)                                                                                         \
    static __attribute__((noinline)) void fill_##name(void)                                                       \
    {                                                                                                             \
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)                                                   \
            name[i] = memset(malloc(bytes), 1, bytes);                                                            \
        __asm__ volatile("");                                                                                     \
    }
FILL(named, 1000)
FILL(dark, 3000)
FILL(twice, 2000)
FILL(halves, 4000)
FILL(inside, 6000)

static size_t all(skinflint_report *out, void **blocks, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += skinflint_report_block(out, blocks[i]);
    return bytes;
}

static void owner(void *context, skinflint_report *out)
{
    (void)context;
    /* Both are measured before either is said. */
    size_t of_named = all(out, named, 10), of_twice = all(out, twice, 5);
    skinflint_report_count(out, "blocks", 15, "Of both.");
    skinflint_report_heap(out, "explicit/named", of_named, "Named.");
    skinflint_report_heap(out, "explicit/owner", of_twice, "Named by another, too.");
}

static void user(void *context, skinflint_report *out)
{
    (void)context;
    /* Measured, and counted elsewhere: not of the next line. */
    skinflint_report_line(out, NULL, "named-again", SKINFLINT_OTHER, SKINFLINT_BYTES, (long long)all(out, named, 10), "");
    skinflint_report_heap(out, "explicit/user", all(out, twice, 5), "Named by another, too.");
    for (int i = 0; i < 4; i++)
        skinflint_report_range(out, halves[i], 2000);
    skinflint_report_heap(out, "explicit/halves", 8000, "The first half of each.");
    if (skinflint_report_wants_blocks(out))
        for (int i = 0; i < 3; i++)
            skinflint_report_inside(out, (char *)inside[i] + 5999, 0);
    skinflint_report_heap(out, "explicit/inside", 3 * 6008, "By an address within each.");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: corner mark|end|dark\n");
        return 2;
    }
    fill_named();
    fill_dark();
    fill_twice();
    fill_halves();
    fill_inside();
    if (strcmp(argv[1], "dark") != 0) {
        skinflint_reporter_add("owner", owner, NULL);
        skinflint_reporter_add("user", user, NULL);
        if (skinflint_memory_open(NULL) != 1) {
            fprintf(stderr, "%s\n", skinflint_report_error());
            return 5;
        }
    }
    if (strcmp(argv[1], "end") == 0)
        return 7;
    skinflint_mark("full");
    while (getchar() != EOF)
        ;
    return 7;
}
