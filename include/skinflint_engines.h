/*
 * skinflint_engines.h: caches that give memory back, buffers, arenas, and counted values whose cycles end.
 *
 *     struct skinflint_cache_options how = {sizeof how};
 *     how.name = "pages";
 *     how.limit_bytes = 64 << 20;
 *     how.free = page_free;                            // void page_free(void *context, void *page)
 *     skinflint_cache *pages = skinflint_cache_new(&how);
 *     skinflint_pressure_open();                       // from now on it shrinks by itself when memory is short
 *
 *     skinflint_cache_insert(pages, "/index", 6, page, SKINFLINT_MALLOC_BYTES, 250000);
 *     struct skinflint_found found;
 *     if (skinflint_cache_get(pages, "/index", 6, &found) == 1) {
 *         show(found.value);
 *         skinflint_hold_release(found.hold);
 *     }
 *
 * A whole program: tests/engines/example.c. More of what the words mean: docs/engines-c.md.
 *
 * C1  Link with -lskinflint_engines (pkg-config: skinflint-engines). 64-bit Linux, x86-64.
 * C2  Objects are numbers that look like pointers: they lead nowhere, and none is given twice. A call with one that was
 *     ended or released, of another sort, or of another thread, fails and says so; it reads nothing and changes nothing.
 * C3  A result below 0 is a failure, and so is a null where an object or an address is returned. What was passed then stays
 *     yours. skinflint_engines_error() says why. Nothing is thrown. Large requests that find no memory fail; where none is
 *     left for the library's own small blocks and tables, the program ends.
 * C4  Your functions must return: no exception, no longjmp out of one. None of the library's locks is held while they run,
 *     so they may call it, except where it says otherwise.
 * C5  Bytes are bytes, _ms milliseconds, _ns nanoseconds. Keys and names are copied; keys are any bytes.
 * C6  Structures that begin with `size` want sizeof there, and 0 in all that is not set.
 * C7  After a fork the child has no bus (skinflint_pressure_open), and must not use what other threads were using.
 *
 * Threads: caches, sets, budgets and the bus may be used by all threads at once. A buffer is for one thread at a time. An
 * arena, and a counted value, are the thread's that made them; the others are told.
 */
#ifndef SKINFLINT_ENGINES_H
#define SKINFLINT_ENGINES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SKINFLINT_E_ARGUMENT (-1) /* an argument that cannot be */
#define SKINFLINT_E_HANDLE (-2)   /* no such object: ended, released, of another sort, or never given */
#define SKINFLINT_E_THREAD (-3)   /* another thread's object, or this thread is ending */
#define SKINFLINT_E_MEMORY (-4)   /* no memory, or more than 16,777,216 objects of a sort at a time */
#define SKINFLINT_E_BUSY (-5)     /* the call would wait for itself */
#define SKINFLINT_E_FAULT (-6)    /* a mistake in the library; please report it */
#define SKINFLINT_E_NOT_MADE (-7) /* your function made nothing */

/* Why the last call on this thread failed, in words; good until the next one that fails. Never null. */
const char *skinflint_engines_error(void);

/* Ends an address that the library took; on any thread, the bus's too (for counted values: on theirs). */
typedef void (*skinflint_free)(void *context, void *address);
/* The context is not used any more: the last call of your functions has returned. On any thread. */
typedef void (*skinflint_done)(void *context);

/* In place of a number of bytes: malloc_usable_size of the address, which is a block of malloc's. */
#define SKINFLINT_MALLOC_BYTES SIZE_MAX

/* ---- Pressure: what gives memory back when it is short, and how much ----------------------------------------------- */

#define SKINFLINT_CALM 0
#define SKINFLINT_NEAR 1     /* a limit is near */
#define SKINFLINT_HIGH 2     /* memory is being reclaimed, or little is left */
#define SKINFLINT_CRITICAL 3 /* all that can be made again goes */

/*
 * Opens the process's bus: one thread, without signals, that hears of pressure from the kernel (PSI, control group) and
 * from a preloaded libskinflint.so, and asks caches and sets, those that are there and those to come, the cheapest to
 * rebuild first; every half second it also ends what is idle or old. 1; 0: it is open already.
 */
int skinflint_pressure_open(void);

/* Closes it, and waits for a round that is under way (not when one of its own callbacks asks). 1; 0: none was open. */
int skinflint_pressure_close(void);

/* How short memory is: SKINFLINT_CALM to CRITICAL. */
int skinflint_pressure_level(void);

struct skinflint_relief {
    size_t size;             /* sizeof */
    int64_t came_back_bytes; /* by which resident memory fell; below 0 if it rose meanwhile */
    uint64_t dropped_bytes;  /* what caches and sets say that they dropped */
    uint64_t asked;          /* caches and sets asked */
    uint64_t spared;         /* and not asked, since enough had come back */
    uint64_t took_ns;
};

/*
 * Has everything asked at a level, or for about so many bytes, and waits for it, so long at most (a minute is the most).
 * 1: done, and `brought`, if not null, says what came of it. 0: no answer in time, the round goes on; also at once where
 * the caller may not wait: on the bus's thread, in a child of fork. Cost: milliseconds.
 */
int skinflint_pressure_press(int level, uint32_t patience_ms, struct skinflint_relief *brought);
int skinflint_pressure_relieve(size_t bytes, uint32_t patience_ms, struct skinflint_relief *brought);

/* ---- Caches -------------------------------------------------------------------------------------------------------- */

typedef struct skinflint_budget skinflint_budget;
typedef struct skinflint_cache skinflint_cache;
typedef struct skinflint_hold skinflint_hold;

/* Bytes that several caches share: the one that saves least time for its bytes gives. Null: 0 bytes. */
skinflint_budget *skinflint_budget_new(size_t limit_bytes);
int skinflint_budget_bytes(skinflint_budget *budget, size_t *used_bytes, size_t *limit_bytes);
/* Its caches keep it as long as they need it. 1. */
int skinflint_budget_end(skinflint_budget *budget);

/* What it takes to have a value again: the cheapest caches are asked first. */
#define SKINFLINT_COMPUTE 0 /* milliseconds of computing */
#define SKINFLINT_NOTHING 1 /* nothing: asked first */
#define SKINFLINT_DECODE 2  /* microseconds, from what stays in memory */
#define SKINFLINT_FETCH 3   /* a disk or a network */
#define SKINFLINT_LOSE 4    /* it cannot be had again: asked last */

/* Why an entry went. */
#define SKINFLINT_REFUSED 1   /* it never was in: too large, or others are asked for more */
#define SKINFLINT_DISPLACED 2 /* others came */
#define SKINFLINT_REPLACED 3  /* another value came for its key */
#define SKINFLINT_IDLE 4      /* it was not used for idle_ms */
#define SKINFLINT_OLD 5       /* lifetime_ms are over */
#define SKINFLINT_RELEASED 6  /* pressure, a budget, or relieve */
#define SKINFLINT_REMOVED 7   /* you removed it */

/*
 * Called once for each entry that went while the cache was there, on the thread that made it go (the bus's too), before
 * `free`. It may use the cache; it must not wait for a thread that inserts.
 */
typedef void (*skinflint_gone)(void *context, const void *key, size_t key_bytes, void *value, int why);

struct skinflint_cache_options {
    size_t size;              /* sizeof */
    const char *name;         /* for logs; null: "cache" */
    size_t limit_bytes;       /* the most it has, tables included; 0: the budget's limit */
    skinflint_budget *budget; /* null: none */
    size_t floor_bytes;       /* never taken for the budget's others */
    uint64_t idle_ms;         /* unused for so long: goes; 0: never for that */
    uint64_t lifetime_ms;     /* goes so long after it came, though used; 0: never for that */
    uint32_t shards;          /* locks, each with its share of the limit, so a value may have half of that; 0: one */
    int rebuild;              /* SKINFLINT_COMPUTE … SKINFLINT_LOSE */
    skinflint_gone gone;      /* null: it is not told */
    skinflint_free free;      /* null: values are not freed */
    skinflint_done done;      /* null: it is not told */
    void *context;            /* what these get */
};

/* Null: no limit and no budget, or options that cannot be. */
skinflint_cache *skinflint_cache_new(const struct skinflint_cache_options *options);

/*
 * Ends a cache: what is not held is freed now, what is held when it is released. Calls that other threads are in end
 * first. 1.
 */
int skinflint_cache_end(skinflint_cache *cache);

/*
 * Puts a value of so many bytes in, in place of one with this key (1,048,576 bytes at most). `cost_ns`: what making it
 * took, which decides between caches. 1: it is in. 0: it was refused, and told as such. With either the value is the library's,
 * and ends with `free`; below 0 it is yours. Bytes of 0 and a null value are refused as arguments. Cost: a copy of the key,
 * three blocks, a lock; some 2,600 instructions.
 */
int skinflint_cache_insert(skinflint_cache *cache, const void *key, size_t key_bytes, void *value, size_t value_bytes,
                           uint64_t cost_ns);

struct skinflint_found {
    void *value; /* good until the hold is released, whatever becomes of the entry and the cache */
    size_t bytes;
    skinflint_hold *hold;
};

/*
 * 1: found, and held. 0: not there; `found` is left alone. Cost: 1,000 instructions with the release; a read lock, the
 * shard's lock, and one of sixteen for holds.
 */
int skinflint_cache_get(skinflint_cache *cache, const void *key, size_t key_bytes, struct skinflint_found *found);

/* Makes a value: 0, with the value and its bytes; else there is none. No lock is held. */
typedef int (*skinflint_make)(void *context, const void *key, size_t key_bytes, void **value, size_t *value_bytes);

/*
 * The same, and makes what is not there; the time that takes is what hits save. Threads that miss one key at once have
 * it made once, and wait; SKINFLINT_E_NOT_MADE goes to all of them. A value that the cache refuses is handed out all the
 * same, and freed when it is released.
 */
int skinflint_cache_get_or_make(skinflint_cache *cache, const void *key, size_t key_bytes, skinflint_make make,
                                void *context, struct skinflint_found *found);

/* Lets a value go. Any thread; once: a second time is SKINFLINT_E_HANDLE. 1. */
int skinflint_hold_release(skinflint_hold *hold);

/* 1: it was there. 0: it was not. */
int skinflint_cache_remove(skinflint_cache *cache, const void *key, size_t key_bytes);

/* Drops about so many bytes, cold entries first, SIZE_MAX: all; `dropped`, if not null, says how many. 1. */
int skinflint_cache_relieve(skinflint_cache *cache, size_t bytes, size_t *dropped);

/* Drops what is idle or old. The bus does it; without one, a timer of yours. 1. */
int skinflint_cache_expire(skinflint_cache *cache, size_t *dropped);

struct skinflint_cache_figures {
    size_t size; /* sizeof */
    uint64_t entries;
    uint64_t bytes; /* now: keys, values and tables */
    uint64_t limit_bytes;
    uint64_t allowed_bytes; /* the limit for now: less after pressure, rising while it is calm */
    uint64_t hits, misses;
    uint64_t inserted; /* entries + refused + evicted + expired + released + removed, at any time */
    uint64_t refused, evicted, expired, released, removed;
    uint64_t saved_ns;
    uint64_t placebo; /* 1: it saves less time than its memory costs */
};
int skinflint_cache_figures(skinflint_cache *cache, struct skinflint_cache_figures *figures);

/* ---- Decoded forms, which go when they are not in use; their sources stay ------------------------------------------- */

typedef struct skinflint_discards skinflint_discards;
typedef struct skinflint_discardable skinflint_discardable;
typedef struct skinflint_pin skinflint_pin;

/*
 * Makes a form of a source: 0, with the form and its bytes; else there is none. Runs on the thread that pins, without a
 * lock. Pinning the form that it is making is SKINFLINT_E_BUSY.
 */
typedef int (*skinflint_decode)(void *context, const void *source, size_t source_bytes, void **form, size_t *form_bytes);

struct skinflint_discards_options {
    size_t size;      /* sizeof */
    const char *name; /* null: "discards" */
    uint64_t keep_ms; /* how long a form stays after its last pin; 0: until the next expire */
    skinflint_decode decode;
    skinflint_free free; /* ends a form; null: forms are not freed */
    skinflint_done done;
    void *context;
};

/* A set of sources with one rule. Null: no decode, or options that cannot be. */
skinflint_discards *skinflint_discards_new(const struct skinflint_discards_options *options);
/* Its sources stay until they are ended themselves; pressure does not reach them any more. 1. */
int skinflint_discards_end(skinflint_discards *set);

/* Copies a source of 1 byte or more. */
skinflint_discardable *skinflint_discardable_new(skinflint_discards *set, const void *source, size_t bytes);
/* Its form goes when the last pin is released. 1. */
int skinflint_discardable_end(skinflint_discardable *item);
/* 1: there is a form now. 0: there is none. */
int skinflint_discardable_is_decoded(skinflint_discardable *item);

struct skinflint_form {
    void *form; /* good until the pin is released */
    size_t bytes;
    skinflint_pin *pin;
};

/* Decodes if need be, and keeps the form. Threads that want one form have it decoded once, and wait. 1. */
int skinflint_discardable_pin(skinflint_discardable *item, struct skinflint_form *form);
/* Any thread; once: a second time is SKINFLINT_E_HANDLE. 1. */
int skinflint_pin_release(skinflint_pin *pin);

/* As of a cache: forms that are not pinned, oldest use first; and those whose keep_ms are over. */
int skinflint_discards_relieve(skinflint_discards *set, size_t bytes, size_t *dropped);
int skinflint_discards_expire(skinflint_discards *set, size_t *dropped);

struct skinflint_discards_figures {
    size_t size; /* sizeof */
    uint64_t sources;
    uint64_t source_bytes;
    uint64_t decoded_bytes;
    uint64_t decodes, pins, discarded;
};
int skinflint_discards_figures(skinflint_discards *set, struct skinflint_discards_figures *figures);

/* ---- Buffers: bytes that grow, in blocks that are used to their end ------------------------------------------------- */

typedef struct skinflint_buffer skinflint_buffer;

/* An empty buffer, with room for so many bytes and what the allocator gives beyond; 0: no block yet. */
skinflint_buffer *skinflint_buffer_new(size_t room_bytes);
int skinflint_buffer_end(skinflint_buffer *buffer);

/* Appends bytes, which must not lie in the buffer itself. 1. Its room doubles when it is not enough. */
int skinflint_buffer_append(skinflint_buffer *buffer, const void *bytes, size_t count);

/* Room for at least so many bytes behind the last; `added` then says how many were written. Null: no memory, or 0 bytes. */
void *skinflint_buffer_reserve(skinflint_buffer *buffer, size_t more_bytes);
int skinflint_buffer_added(skinflint_buffer *buffer, size_t bytes);

struct skinflint_view {
    void *data; /* good until a call changes the buffer; not to be followed if room_bytes is 0 */
    size_t bytes;
    size_t room_bytes;
    size_t held_bytes; /* by the allocator's count; held_bytes - room_bytes is slop: less than 16, 4,112 from 128 KiB on */
};
int skinflint_buffer_view(skinflint_buffer *buffer, struct skinflint_view *view);

/* Keeps the first so many bytes; no memory goes back. */
int skinflint_buffer_truncate(skinflint_buffer *buffer, size_t bytes);
/* Gives the room back that is not used. */
int skinflint_buffer_shrink(skinflint_buffer *buffer);

/* ---- Arenas: what ends together ------------------------------------------------------------------------------------- */

typedef struct skinflint_arena skinflint_arena;

/* Begins an arena of this thread's. What a thread leaves behind ends with it. */
skinflint_arena *skinflint_arena_begin(void);

/*
 * Room for 1 byte or more, not cleared, until reset or end. `align`: 1, 2, 4 … 4096; 0: 16. Null: no memory, or an argument
 * that cannot be. Cost: 200 instructions; now and then a block of up to 64 KiB.
 */
void *skinflint_arena_alloc(skinflint_arena *arena, size_t bytes, size_t align);
/* Room, with these bytes in it. */
void *skinflint_arena_copy(skinflint_arena *arena, const void *bytes, size_t count);

/* Ends all that is in it; the largest block stays for what comes. 1. */
int skinflint_arena_reset(skinflint_arena *arena);
/* Ends it. 1; a second time is SKINFLINT_E_HANDLE. */
int skinflint_arena_end(skinflint_arena *arena);

/* Bytes handed out, and bytes of its blocks by the allocator's count; either may be null. */
int skinflint_arena_bytes(skinflint_arena *arena, size_t *used_bytes, size_t *held_bytes);

/* ---- Counted values whose cycles are found -------------------------------------------------------------------------- */

/*
 * A value has a payload of yours and edges to other values, which the library keeps: so the collector of cycles knows each
 * edge, and nothing that you could get wrong leads it astray. Each skinflint_counted is one count, and is released once. A
 * value ends when its last count goes, edges included, or with a cycle that nothing outside holds: then `drop` gets the
 * payload, on the value's thread. At the end of a thread (main's: at exit) its counts are released and its cycles end.
 *
 * A value reached only through its payload, by means of yours, is unknown to the collector: that is a count that you
 * keep, and if it is part of a cycle, a leak. Use edges.
 */
typedef struct skinflint_counted skinflint_counted;
typedef struct skinflint_weak skinflint_weak;

/*
 * A value with so many empty edges, and one count. `drop` may be null, and so may the payload. Cost: two blocks; 1,000
 * instructions with the release, and each 64th call a slice of collecting cycles, if that is due.
 */
skinflint_counted *skinflint_counted_new(void *payload, size_t edges, skinflint_free drop, void *context);

/* One count more. */
skinflint_counted *skinflint_counted_share(skinflint_counted *value);
/* One count less: this one. 1; a second time is SKINFLINT_E_HANDLE. Ends the value if it was the last. */
int skinflint_counted_release(skinflint_counted *value);

/* The payload. Null: it is, or a failure (then skinflint_counted_edges fails too). Good as long as the value. */
void *skinflint_counted_payload(skinflint_counted *value);

int skinflint_counted_edges(skinflint_counted *value, size_t *edges);
/* More edges, which are empty, or fewer: the last ones are let go. */
int skinflint_counted_resize(skinflint_counted *value, size_t edges);

/* Has edge `at` (from 0) lead to a value, or with null to nothing. The edge is a count of its own; `to` stays yours. 1. */
int skinflint_counted_set(skinflint_counted *value, size_t at, skinflint_counted *to);
/* 1: `to` is a new count of what the edge leads to, for you to release. 0: to nothing; `to` is null. */
int skinflint_counted_edge(skinflint_counted *value, size_t at, skinflint_counted **to);

/* 1: both are counts of one value. 0: of two. */
int skinflint_counted_same(skinflint_counted *one, skinflint_counted *other);

/* Keeps nothing alive. */
skinflint_weak *skinflint_weak_new(skinflint_counted *value);
/* 1: `to` is a new count. 0: the value has ended; `to` is null. */
int skinflint_weak_open(skinflint_weak *weak, skinflint_counted **to);
int skinflint_weak_release(skinflint_weak *weak);

/*
 * Ends all cycles of this thread that nothing outside holds; `destroyed`, if not null, says how many values went. 1.
 * Within a `drop` that it has called itself nothing is done. Cost: a walk over what values lead to whose counts fell.
 */
int skinflint_counted_collect(uint64_t *destroyed);
/* The same in slices of about so many values. 1: nothing is left to do. 0: go on. */
int skinflint_counted_step(uint64_t values);

struct skinflint_counted_figures {
    size_t size;     /* sizeof */
    uint64_t values; /* of this thread, alive */
    uint64_t candidates;
    uint64_t collections;
    uint64_t destroyed; /* by collections */
};
int skinflint_counted_figures(struct skinflint_counted_figures *figures);

#ifdef __cplusplus
}
#endif

#endif /* SKINFLINT_ENGINES_H */
