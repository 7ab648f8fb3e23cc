/*
 * reporters.c: twenty parts of a program that hold 400,000 bytes each, of which the first N have a memory reporter.
 *
 *     reporters N         N from 0 to 20; ends with all of it live and its socket open
 *
 * Predicted: of 8,000,000 bytes in 800 blocks (and what the library of reporters holds for itself) N twentieths are
 * reported, and the rest is dark.
 */
#include <stdlib.h>
#include <string.h>

#include "skinflint_report.h"

/* Found at run time, in what is preloaded. A program of one's own links with -lskinflint_report. */
#pragma weak skinflint_reporter_add
#pragma weak skinflint_report_line
#pragma weak skinflint_report_block
#pragma weak skinflint_memory_open

enum { PARTS = 20, BLOCKS = 40, BYTES = 10000 };

static struct part {
    char path[32];
    void *blocks[BLOCKS];
} parts[PARTS];

static void report(void *context, skinflint_report *out)
{
    struct part *part = context;
    size_t bytes = 0;
    for (int at = 0; at < BLOCKS; at++)
        bytes += skinflint_report_block(out, part->blocks[at]);
    skinflint_report_heap(out, part->path, bytes, "One part of the program.");
}

static __attribute__((noinline)) void fill(struct part *part)
{
    for (int at = 0; at < BLOCKS; at++)
        part->blocks[at] = memset(malloc(BYTES), 1, BYTES);
    __asm__ volatile("");
}

int main(int argc, char **argv)
{
    int reported = argc == 2 ? atoi(argv[1]) : -1;
    if (reported < 0 || reported > PARTS || skinflint_memory_open == NULL)
        return 2;
    for (int at = 0; at < PARTS; at++) {
        strcpy(parts[at].path, "explicit/part-aa");
        parts[at].path[14] += (char)(at / 10);
        parts[at].path[15] += (char)(at % 10);
        fill(&parts[at]);
        if (at < reported)
            skinflint_reporter_add(parts[at].path, report, &parts[at]);
    }
    return skinflint_memory_open(NULL) == 1 ? 0 : 5;
}
