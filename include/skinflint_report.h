/*
 * skinflint_report.h: what a program says of its own memory, for `skinflint memory` and Firefox's about:memory.
 *
 *     static void images(void *cache, skinflint_report *out)
 *     {
 *         size_t bytes = 0;
 *         for (struct image *image = first(cache); image; image = image->next)
 *             bytes += skinflint_report_block(out, image->pixels);
 *         skinflint_report_heap(out, "explicit/caches/images", bytes, "Decoded images.");
 *     }
 *
 *     skinflint_reporter_add("images", images, cache);
 *     skinflint_memory_open(NULL);             // skinflint memory PID shows it from now on
 *
 * R1  Link with -L$PREFIX/lib/skinflint -Wl,-rpath,$PREFIX/lib/skinflint -lskinflint_report, PREFIX being where it was
 *     installed. Functions may be called on any thread. Texts are UTF-8 and copied.
 * R2  A reporter runs on a thread of the measurement's, two seconds at most; it may take locks. One that takes
 *     longer, or says something unsound, is left out and named; the others are shown.
 * R3  A path is names with '/' between them; a '/' within a name is written '\'. Below explicit/ lines are of
 *     bytes, of the heap (measured by malloc_usable_size) or beside it. heap-allocated, resident and the like are
 *     there already and not for reporters, and heap-unclassified is what your lines leave over.
 * R4  A function must return: no exception, no longjmp out of it.
 * R5  Where a request looks for dark matter (skinflint run --dark-matter), a line of the heap also says which blocks it
 *     has measured: those of skinflint_report_block and the like since the line before, in the order of the lines.
 *     Otherwise these take no memory.
 *
 * Not here: marks and the allocator (skinflint.h).
 */
#ifndef SKINFLINT_REPORT_H
#define SKINFLINT_REPORT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Where the lines of one reporter go; good until it returns. A later use of it gets -1 (or 0) and does no harm; it is
 * no address, and never the same twice.
 */
typedef struct skinflint_report skinflint_report;

#define SKINFLINT_NONHEAP 0 /* mapped by other means than malloc */
#define SKINFLINT_HEAP 1    /* in blocks of malloc */
#define SKINFLINT_OTHER 2   /* not to be added: counts, and what is counted elsewhere */

#define SKINFLINT_BYTES 0
#define SKINFLINT_COUNT 1
#define SKINFLINT_COUNT_CUMULATIVE 2
#define SKINFLINT_PERCENTAGE 3 /* hundredths of a percent */

/* Why the last call on this thread failed, in words; good until the next one. */
const char *skinflint_report_error(void);

/* Adds a reporter. `name` is for the user, should it be left out. Its number; 0: failed. */
typedef void (*skinflint_reporter)(void *context, skinflint_report *out);
unsigned long skinflint_reporter_add(const char *name, skinflint_reporter reporter, void *context);

/*
 * Has something done when the user asks: `action` is "minimize", "gc" or "cc". It writes a few words of what came of
 * it to `said`, a C string with room for so many bytes. It runs on a thread of its own and has ten seconds; one that
 * takes longer is named, and not asked again before it has come back. Its number; 0: failed.
 */
typedef void (*skinflint_deed)(void *context, char *said, size_t room);
unsigned long skinflint_action_add(const char *action, const char *name, skinflint_deed deed, void *context);

/*
 * Removes a reporter or an action, and waits until it does not run. 1: it does not and will not; its context may go.
 * 0: it still runs after ten seconds, or has called this itself (which is told at once); the context must stay. -1: there
 * is no such number.
 */
int skinflint_reporter_remove(unsigned long number);

/* Adds a line. `process`: NULL is this one. 1, or -1: the reporter is left out and may as well return. */
int skinflint_report_line(skinflint_report *out, const char *process, const char *path, int kind, int units,
                          long long amount, const char *description);

/*
 * Usable bytes of a live block of malloc's, 0 of NULL; the line that they are added up for names it (R5). The thread
 * that the reporter runs on.
 */
size_t skinflint_report_block(skinflint_report *out, const void *block);

/*
 * The same for a block that was measured otherwise: any address in it, and the bytes that were counted for it; 0 if they
 * are counted in one sum with others. Nothing is read there.
 */
void skinflint_report_inside(skinflint_report *out, const void *inside, size_t bytes);

/* The same for a part of a block, or for blocks that lie side by side. */
void skinflint_report_range(skinflint_report *out, const void *start, size_t bytes);

/* Whether blocks are asked for: a reporter that keeps sums and would have to walk need not, if this is 0. */
int skinflint_report_wants_blocks(skinflint_report *out);

/* Has the reporter left out, with these words; NULL: it gave no reason. */
void skinflint_report_fail(skinflint_report *out, const char *what);

static __inline__ int skinflint_report_heap(skinflint_report *out, const char *path, size_t bytes,
                                            const char *description)
{
    return skinflint_report_line(out, NULL, path, SKINFLINT_HEAP, SKINFLINT_BYTES, (long long)bytes, description);
}

static __inline__ int skinflint_report_nonheap(skinflint_report *out, const char *path, size_t bytes,
                                               const char *description)
{
    return skinflint_report_line(out, NULL, path, SKINFLINT_NONHEAP, SKINFLINT_BYTES, (long long)bytes, description);
}

static __inline__ int skinflint_report_count(skinflint_report *out, const char *path, unsigned long count,
                                             const char *description)
{
    return skinflint_report_line(out, NULL, path, SKINFLINT_OTHER, SKINFLINT_COUNT, (long long)count, description);
}

/*
 * Lets `skinflint memory` of the same user ask, over a socket in `folder`; NULL is the usual one. The folder is made
 * if need be, and must be the user's alone. One thread, which takes no signals. 1, or -1. After a fork the child has no
 * socket, and may open its own; closing there leaves the parent's alone.
 */
int skinflint_memory_open(const char *folder);

/*
 * Closes the socket. Waits for an answer that is under way, and for reporters and actions that run, ten seconds
 * each at most: then none of them is called any more. Called by one of them it does not wait.
 */
void skinflint_memory_close(void);

/*
 * Measures, and writes a file for about:memory; gzipped if its name ends in .gz. 0; n > 0: written, and n reporters
 * were left out (skinflint_report_error names them); -1: failed.
 */
int skinflint_memory_save(const char *path);

#ifdef __cplusplus
}
#endif

#endif /* SKINFLINT_REPORT_H */
