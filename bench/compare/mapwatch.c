/* mapwatch: marks what a program maps by itself, so that what is left is malloc's.
 *
 *   program ── mmap ──► mapwatch ── mmap, then MADV_DONTDUMP ──► "dd" among the VmFlags of /proc/PID/smaps
 *   malloc  ── the C library's own mmap and brk, which are not interposed ──► no such flag
 *
 * W1  Nothing else is changed: malloc, its thresholds and its arenas are the C library's. A range with another flag is
 *     not joined with its neighbours, so each mapping of smaps is wholly the program's or wholly not.
 * W2  errno is left as mmap left it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *marked(void *at, size_t length, int flags) {
    int before = errno;
    if (at != MAP_FAILED && (flags & MAP_ANONYMOUS)) madvise(at, length, MADV_DONTDUMP);
    errno = before;
    return at;
}

void *mmap(void *at, size_t length, int protection, int flags, int file, off_t offset) {
    return marked((void *)syscall(SYS_mmap, at, length, protection, flags, file, offset), length, flags);
}

void *mmap64(void *at, size_t length, int protection, int flags, int file, off64_t offset) {
    return mmap(at, length, protection, flags, file, offset);
}
