/*
 * skinflint.h: what a program may say to Skinflint: to the recorder, and to the allocator.
 *
 *     #include "skinflint.h"
 *
 *     skinflint_mark("load begin");
 *     load();
 *     skinflint_mark("load end");       // what "load" left behind is a zombie of that phase
 *
 *     skinflint_trim();                 // give back all that is free, now
 *
 * H1  Nothing has to be linked: without the recorder a mark is one load and one branch; without the
 *     allocator its functions answer 0.
 * H2  A mark allocates nothing in the program and may be called from any thread, also before main
 *     and while the program exits. The name is copied; it may be freed after the call.
 * H3  C and C++, gcc and clang, with or without -fPIE.
 *
 * Not here: malloc and its kin, which <stdlib.h> and <malloc.h> declare; what marks are good for (docs), marks by signal (`skinflint record --help`).
 */
#ifndef SKINFLINT_H
#define SKINFLINT_H

#if !defined(__linux__) || !defined(__x86_64__)
#error "Skinflint records on Linux x86-64 only"
#endif

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Marks a moment. `name`: any bytes up to a NUL; UTF-8 is shown as it is. "NAME begin" and
 * "NAME end" make a phase.
 *
 * The recorder exports a function `skinflint_mark`. A weak definition of the same name here would
 * hide it, since the executable comes before preloaded objects in the order of lookup; so this
 * wrapper has another name in the assembler, and refers to the recorder's weakly.
 */
static __inline__ void skinflint_mark(const char *name) __asm__("skinflint_mark_if_recorded_")
    __attribute__((unused));

static __inline__ void skinflint_mark(const char *name)
{
    void (*recorder)(const char *);
    /*
     * Through the GOT, also where the compiler would not: in a position-dependent executable the
     * linker answers a direct weak reference with 0 for good, and marks would be lost in silence.
     */
    __asm__(".weak skinflint_mark\n\tmovq skinflint_mark@GOTPCREL(%%rip), %0" : "=r"(recorder));
    if (recorder)
        recorder(name);
}

/*
 * Gives all free memory back to the system at once. Needs no call: what is free goes back by itself after a
 * while. 1 if anything was given back, 0 if not, or if the program does not run on libskinflint.so.
 * Thread-safe; takes about half a microsecond for each page that is given back.
 */
static __inline__ int skinflint_trim(void) __asm__("skinflint_trim_if_preloaded_") __attribute__((unused));

static __inline__ int skinflint_trim(void)
{
    int (*allocator)(void);
    __asm__(".weak skinflint_trim\n\tmovq skinflint_trim@GOTPCREL(%%rip), %0" : "=r"(allocator));
    return allocator ? allocator() : 0;
}

/*
 * The rest of the allocator is called by its names: link the program with libskinflint.so (-lskinflint), or
 * find the names with dlsym(RTLD_DEFAULT, ...) if it is only preloaded. All of it is thread-safe.
 *
 * Figures, as one line of JSON. What does not fit into `bytes` is cut off; the text is closed with a zero, and
 * the result is the length of the whole, as snprintf's is. 0: none can be had (a signal handler that
 * interrupted the allocator). Takes a few milliseconds for each GiB, in which allocations may have to
 * wait, and 8 KiB of stack.
 */
size_t skinflint_stats_json(char *buffer, size_t bytes);

/*
 * Keeps so many bytes back, resident, and releases them before an allocation fails. Filled again later, when
 * there is memory; at most half of what is available is taken. 1 if all of it is there now, 0 if not yet. 0 bytes: none.
 * The child of a fork has none. Also SKINFLINT_RESERVE, which is filled as the heap grows.
 */
int skinflint_set_reserve(size_t bytes);

/*
 * Tells the kernel of live memory that is cold: which it is to take first when memory is short, or with
 * SKINFLINT_PAGE_OUT is to write to swap now. Contents stay; the next access costs a fault, and a read of the swap.
 *
 * Cold are pages of small blocks among which no block was allocated or freed since the last call, so call it again and
 * again, with the time in between for which memory has to lie still: the first call only looks, and returns 0. Reads and
 * writes cannot be seen, nor a block that was freed and taken again at its place. Large blocks (above 32 KiB) are left out
 * unless SKINFLINT_LARGE_TOO is given: a buffer that is computed with for hours looks cold.
 *
 * The result is the bytes that the kernel was told of, swapped out before or not; locked memory is not counted. -1 with
 * errno EINVAL: unknown bits; EBUSY: another thread is in it; ENOSYS: Linux before 5.4; ENOMEM. Thread-safe; not for signal
 * handlers. Looks at each span of 4 to 64 KiB, and takes 0.1 % of the heap from the first call on; paging out takes as long
 * as the swap does, during which other threads may allocate.
 */
#define SKINFLINT_PAGE_OUT 1
#define SKINFLINT_LARGE_TOO 2
long skinflint_cool(int how);

/*
 * A sampled heap profile: what stacks hold, and have asked for, as estimates that are right on average. Also
 * SKINFLINT_PROFILE=on, from the start. One block is noted for each `bytes` requested on average (512 KiB; 1 KiB to 1 GiB),
 * with its stack, from start() to stop(); blocks that were noted stay known until they are freed.
 *
 * start: 1 if the profile is kept, 0 if it cannot be (SKINFLINT_HARDEN, no memory). set_rate: 1, or 0 if there is no such rate.
 * write: writes the text form that pprof and jeprof read to a file descriptor, of what is in use now or was at the peak;
 * 0, or an error's number: ENODATA (no profile was begun), EINVAL, and those of write(2), after which the file is cut off.
 * Thread-safe; not for signal handlers. write takes a few milliseconds, in which other threads may allocate.
 */
#define SKINFLINT_PROFILE_IN_USE 0
#define SKINFLINT_PROFILE_PEAK 1
int skinflint_profile_start(void);
void skinflint_profile_stop(void);
int skinflint_profile_set_rate(size_t bytes);
int skinflint_profile_write(int file, int what);

/* How bad it is. */
#define SKINFLINT_PRESSURE_NEAR 1     /* the memory cgroup's limit is near; nothing has failed */
#define SKINFLINT_PRESSURE_RESERVE 2  /* the system refused, and the reserve was released */
#define SKINFLINT_PRESSURE_CRITICAL 3 /* the system refused, and there is no reserve (any more) */

/*
 * A listener is called with its context, one of the levels, and the bytes wanted (0 if unknown), on the thread
 * whose allocation was refused, after the reserve was released and all free memory given back, and before
 * the allocation is tried again. No lock of the allocator is held: it may allocate and free. It may be
 * called on several threads at once, but not twice on one; it must return. There is room for 32.
 * 1 if it was added, or was there to be taken away.
 */
typedef void (*skinflint_listener)(void *context, int level, size_t wanted);
int skinflint_on_pressure(skinflint_listener listener, void *context);
int skinflint_off_pressure(skinflint_listener listener, void *context);

/*
 * Heaps of one's own: what is allocated from one is counted for it, and goes whole when it is destroyed, in
 * time for its pages and not for its blocks. Any thread may use a heap. free() and malloc_usable_size()
 * work on its blocks; realloc() does too, but a block that it moves leaves the heap.
 *
 * create: null if there is no memory. destroy: the heap and its blocks must not be used any more; null is nothing.
 * A heap that was destroyed is known as such: its use is reported on stderr, and ends the program unless
 * SKINFLINT_BAD_FREE says otherwise. memalign: EINVAL if `align` is no power of two.
 * bytes, blocks: usable bytes of live blocks, and their number; a look at each of its spans.
 */
typedef struct skinflint_heap skinflint_heap;
skinflint_heap *skinflint_heap_create(void);
void skinflint_heap_destroy(skinflint_heap *heap);
void *skinflint_heap_malloc(skinflint_heap *heap, size_t size);
void *skinflint_heap_calloc(skinflint_heap *heap, size_t count, size_t each);
void *skinflint_heap_realloc(skinflint_heap *heap, void *block, size_t size);
void *skinflint_heap_memalign(skinflint_heap *heap, size_t align, size_t size);
void skinflint_heap_free(skinflint_heap *heap, void *block);
size_t skinflint_heap_usable(skinflint_heap *heap, void *block);
size_t skinflint_heap_bytes(skinflint_heap *heap);
size_t skinflint_heap_blocks(skinflint_heap *heap);

#ifdef __cplusplus
}
#endif

#endif /* SKINFLINT_H */
