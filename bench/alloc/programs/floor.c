/* floor.so: notes every live block of a program in a file that others read, to count the pages that hold a live byte.
 *
 *   LD_PRELOAD=floor.so:ALLOCATOR  BENCH_FLOOR_FILE=…  program
 *      malloc, free …  ──► the next library's ──► slot (address, bytes) in the shared file  ──► floor_read
 *
 * F1  The table is a shared mapping of a file: nothing is taken from the allocator under test, and who reads it needs
 *     no signal and no word from the program.
 * F2  A block is in the table from after it was handed out until before it is given back: what is read while the
 *     program stands still is exact.
 * F3  Anonymous memory that the program maps for itself is noted as a block too, unless the call comes from the
 *     allocator or from libc or the loader: it is live as far as anybody here can know.
 * F4  Only for runs in which nothing else is measured: it costs time and 16 bytes a block.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLOTS = 1 << 23, TOMB = 1 };
typedef struct {
    _Atomic uintptr_t at;
    size_t bytes;
} slot_t;

static slot_t *table;
static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t), *(*real_realloc)(void *, size_t);
static void *(*real_memalign)(size_t, size_t), *(*real_aligned)(size_t, size_t);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_posix)(void **, size_t, size_t), (*real_munmap)(void *, size_t);
static void (*real_free)(void *);
static void *own_code, *libc_code, *allocator_code;

/* What dlsym itself takes before the next library's functions are known; never given back. */
static _Alignas(16) unsigned char early[1 << 16];
static size_t early_used;

static void die(const char *what) {
    ssize_t ignored = write(2, what, strlen(what));
    (void)ignored;
    _exit(3);
}

static int is_early(const void *at) {
    return (const unsigned char *)at >= early && (const unsigned char *)at < early + sizeof early;
}

static void *early_take(size_t bytes) {
    size_t rounded = (bytes + 15) & ~(size_t)15;
    if (early_used + rounded > sizeof early) die("floor.so: too much is taken before the start\n");
    early_used += rounded;
    return early + early_used - rounded;
}

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) die("floor.so: a function of the malloc family is missing\n");
    return found;
}

static void *base_of(void *address) {
    Dl_info info = {0};
    return dladdr(address, &info) ? info.dli_fbase : NULL;
}

static void start(void) {
    static int started;
    if (started) return;
    started = 1;
    real_calloc = next("calloc");
    real_malloc = next("malloc");
    real_realloc = next("realloc");
    real_memalign = next("memalign");
    real_aligned = next("aligned_alloc");
    real_posix = next("posix_memalign");
    real_mmap = next("mmap");
    real_munmap = next("munmap");
    real_free = next("free");
    own_code = base_of((void *)start);
    libc_code = base_of((void *)real_mmap);
    allocator_code = base_of((void *)real_malloc);
    const char *path = getenv("BENCH_FLOOR_FILE");
    if (!path) die("floor.so: BENCH_FLOOR_FILE is not set\n");
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, SLOTS * sizeof(slot_t))) die("floor.so: cannot make BENCH_FLOOR_FILE\n");
    void *at = real_mmap(NULL, SLOTS * sizeof(slot_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) die("floor.so: cannot map BENCH_FLOOR_FILE\n");
    table = at;
}

static size_t place_of(uintptr_t at) { return (size_t)((at >> 4) * 0x9e3779b97f4a7c15u >> 41) & (SLOTS - 1); }

static void note(void *block, size_t bytes) {
    uintptr_t at = (uintptr_t)block;
    if (!at || !table) return;
    size_t place = place_of(at);
    for (size_t tries = 0; tries < SLOTS; tries++, place = (place + 1) & (SLOTS - 1)) {
        uintptr_t seen = atomic_load_explicit(&table[place].at, memory_order_relaxed);
        if (seen > TOMB) continue;
        if (!atomic_compare_exchange_strong(&table[place].at, &seen, at)) continue;
        table[place].bytes = bytes;
        return;
    }
    die("floor.so: more live blocks than the table holds\n");
}

/* A tomb stays where a block was, so that what was placed behind it is still found. */
static size_t forget(void *block) {
    uintptr_t at = (uintptr_t)block;
    if (!at || !table) return 0;
    size_t place = place_of(at);
    for (size_t tries = 0; tries < SLOTS; tries++, place = (place + 1) & (SLOTS - 1)) {
        uintptr_t seen = atomic_load_explicit(&table[place].at, memory_order_relaxed);
        if (seen == at) {
            size_t bytes = table[place].bytes;
            atomic_store(&table[place].at, TOMB);
            return bytes;
        }
        if (seen == 0) return 0;
    }
    return 0;
}

void *malloc(size_t bytes) {
    start();
    if (!real_malloc) return early_take(bytes);
    void *at = real_malloc(bytes);
    note(at, bytes);
    return at;
}

void *calloc(size_t count, size_t bytes) {
    start();
    if (!real_calloc) return early_take(count * bytes);
    void *at = real_calloc(count, bytes);
    note(at, count * bytes);
    return at;
}

void free(void *at) {
    if (!at || is_early(at)) return;
    start();
    int kept = errno;
    forget(at);
    errno = kept;
    real_free(at);
}

void *realloc(void *at, size_t bytes) {
    start();
    if (is_early(at)) {
        void *fresh = malloc(bytes);
        size_t room = (size_t)(early + sizeof early - (unsigned char *)at);
        if (fresh) memcpy(fresh, at, bytes < room ? bytes : room);
        return fresh;
    }
    size_t before = forget(at);
    void *fresh = real_realloc(at, bytes);
    if (fresh) note(fresh, bytes);
    else if (at && bytes) note(at, before);
    return fresh;
}

void *reallocarray(void *at, size_t count, size_t bytes) {
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(at, all);
}

void *memalign(size_t align, size_t bytes) {
    start();
    void *at = real_memalign(align, bytes);
    note(at, bytes);
    return at;
}

void *aligned_alloc(size_t align, size_t bytes) {
    start();
    void *at = real_aligned(align, bytes);
    note(at, bytes);
    return at;
}

int posix_memalign(void **out, size_t align, size_t bytes) {
    start();
    int error = real_posix(out, align, bytes);
    if (!error) note(*out, bytes);
    return error;
}

static int program_called(void *caller) {
    void *base = base_of(caller);
    return table && base != own_code && base != libc_code && base != allocator_code;
}

static void *map_noted(void *at, size_t bytes, int protection, int flags, int file, off_t offset, void *caller) {
    start();
    void *fresh = real_mmap(at, bytes, protection, flags, file, offset);
    if (fresh != MAP_FAILED && (flags & MAP_ANONYMOUS) && (protection & PROT_WRITE) && program_called(caller))
        note(fresh, bytes);
    return fresh;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    return map_noted(at, bytes, protection, flags, file, offset, __builtin_return_address(0));
}

/* Programs built for large files call this name. */
void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    return map_noted(at, bytes, protection, flags, file, offset, __builtin_return_address(0));
}

int munmap(void *at, size_t bytes) {
    start();
    forget(at);
    return real_munmap(at, bytes);
}
