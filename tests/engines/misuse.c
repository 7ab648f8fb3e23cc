/*
 * What a program may do wrong with skinflint_engines.h: each is told, with the code and the words that are expected here,
 * and none ends the program or reads what it must not (as AddressSanitizer checks).
 *
 *     misuse ─► one line for each fault that was not told, and the number of those that were
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "skinflint_engines.h"

static int told, missed;

static void expect_at(int line, int result, int code, const char *words)
{
    if (result == code && strstr(skinflint_engines_error(), words) != NULL) {
        told++;
        return;
    }
    missed++;
    printf("line %d: %d, not %d; \"%s\" has no \"%s\"\n", line, result, code, skinflint_engines_error(), words);
}

#define EXPECT(call, code, words) expect_at(__LINE__, (call), SKINFLINT_E_##code, words)
#define EXPECT_NULL(call, words) expect_at(__LINE__, (call) == NULL ? 0 : 1, 0, words)
#define HOLDS(condition) \
    do { \
        if (!(condition)) { \
            missed++; \
            printf("line %d: %s\n", __LINE__, #condition); \
        } \
    } while (0)

static int freed, done, gone;

static void free_it(void *context, void *value)
{
    (void)context;
    freed++;
    free(value);
}

static void done_it(void *context)
{
    (void)context;
    done++;
}

static skinflint_cache *the_cache;

/* Uses the cache that it hears of, and misuses it: both are allowed to a function of the program's. */
static void gone_it(void *context, const void *key, size_t key_bytes, void *value, int why)
{
    (void)context, (void)value, (void)why;
    gone++;
    HOLDS(skinflint_cache_remove(the_cache, key, key_bytes) == 0);
    EXPECT(skinflint_hold_release(NULL), ARGUMENT, "null");
}

static int make_nothing(void *context, const void *key, size_t key_bytes, void **value, size_t *bytes)
{
    (void)key, (void)key_bytes, (void)value, (void)bytes;
    return *(int *)context; /* 0: says that there is one, and there is not */
}

static skinflint_cache *new_cache(void)
{
    struct skinflint_cache_options how = {0};
    how.size = sizeof how;
    how.limit_bytes = 1 << 20;
    how.gone = gone_it;
    how.free = free_it;
    how.done = done_it;
    return skinflint_cache_new(&how);
}

static void cache_options(void)
{
    struct {
        struct skinflint_cache_options how;
        int later;
    } more = {{0}, 0};
    struct skinflint_cache_options *how = &more.how;
    EXPECT_NULL(skinflint_cache_new(NULL), "null");
    EXPECT_NULL(skinflint_cache_new(how), "size is 0");
    how->size = sizeof *how;
    EXPECT_NULL(skinflint_cache_new(how), "limit of 0");
    how->limit_bytes = 1 << 20;
    how->rebuild = 5;
    EXPECT_NULL(skinflint_cache_new(how), "rebuild is 5");
    how->rebuild = 0;
    how->shards = 257;
    EXPECT_NULL(skinflint_cache_new(how), "257 shards");
    how->shards = 0;
    how->budget = (skinflint_budget *)&more;
    EXPECT_NULL(skinflint_cache_new(how), "did not come from this library");
    how->budget = NULL;
    how->size = sizeof more;
    more.later = 1;
    EXPECT_NULL(skinflint_cache_new(how), "does not know");
    more.later = 0;
    skinflint_cache *cache = skinflint_cache_new(how); /* a later structure whose new fields are not set */
    HOLDS(cache != NULL && skinflint_cache_end(cache) == 1);
    EXPECT_NULL(skinflint_budget_new(0), "0 bytes");
}

static void caches(void)
{
    skinflint_cache *cache = the_cache = new_cache();
    char *value = malloc(100);
    EXPECT(skinflint_cache_insert(cache, NULL, 3, value, 100, 0), ARGUMENT, "key: null");
    EXPECT(skinflint_cache_insert(cache, "k", SIZE_MAX, value, 100, 0), ARGUMENT, "a key of");
    EXPECT(skinflint_cache_insert(cache, "k", 1, NULL, 100, 0), ARGUMENT, "value: null");
    EXPECT(skinflint_cache_insert(cache, "k", 1, NULL, SKINFLINT_MALLOC_BYTES, 0), ARGUMENT, "value: null");
    EXPECT(skinflint_cache_insert(cache, "k", 1, value, 0, 0), ARGUMENT, "0 bytes");
    EXPECT(skinflint_cache_insert(NULL, "k", 1, value, 100, 0), ARGUMENT, "null");
    HOLDS(freed == 0); /* each of these left it alone */
    HOLDS(skinflint_cache_insert(cache, "k", 1, value, SKINFLINT_MALLOC_BYTES, 0) == 1);
    HOLDS(skinflint_cache_insert(cache, NULL, 0, malloc(1), 1, 0) == 1); /* no bytes are a key */
    HOLDS(skinflint_cache_insert(cache, "big", 3, malloc(1), 2 << 20, 0) == 0); /* more than the limit */
    HOLDS(gone == 1 && freed == 1);

    struct skinflint_found found, other;
    EXPECT(skinflint_cache_get(cache, "k", 1, NULL), ARGUMENT, "null");
    HOLDS(skinflint_cache_get(cache, "x", 1, &found) == 0);
    HOLDS(skinflint_cache_get(cache, "k", 1, &found) == 1 && found.value == value && found.bytes >= 100);
    HOLDS(skinflint_cache_get(cache, "k", 1, &other) == 1 && other.hold != found.hold);
    HOLDS(skinflint_hold_release(other.hold) == 1);
    EXPECT(skinflint_hold_release(other.hold), HANDLE, "released before");
    EXPECT(skinflint_hold_release((skinflint_hold *)cache), HANDLE, "a skinflint_cache where a skinflint_hold");
    EXPECT(skinflint_cache_end((skinflint_cache *)found.hold), HANDLE, "a skinflint_hold where a skinflint_cache");
    EXPECT(skinflint_cache_end((skinflint_cache *)value), HANDLE, "did not come from this library");
    EXPECT(skinflint_cache_relieve(cache, 0, NULL), ARGUMENT, "0 bytes");
    EXPECT(skinflint_cache_figures(cache, NULL), ARGUMENT, "null");

    int result = 7;
    EXPECT(skinflint_cache_get_or_make(cache, "n", 1, NULL, NULL, &other), ARGUMENT, "null");
    EXPECT(skinflint_cache_get_or_make(cache, "n", 1, make_nothing, &result, &other), NOT_MADE, "returned 7");
    result = 0;
    EXPECT(skinflint_cache_get_or_make(cache, "n", 1, make_nothing, &result, &other), ARGUMENT, "made: null");

    /* The cache ends; what is held stays until it is released, and the context as long as that. */
    HOLDS(skinflint_cache_end(cache) == 1);
    EXPECT(skinflint_cache_end(cache), HANDLE, "ended");
    EXPECT(skinflint_cache_get(cache, "k", 1, &other), HANDLE, "ended");
    HOLDS(freed == 2 && done == 0);
    memset(found.value, 1, 100);
    HOLDS(skinflint_hold_release(found.hold) == 1);
    HOLDS(freed == 3 && done == 1);
}

static int decode_itself(void *context, const void *source, size_t bytes, void **form, size_t *form_bytes)
{
    struct skinflint_form again;
    (void)source, (void)bytes;
    EXPECT(skinflint_discardable_pin(*(skinflint_discardable **)context, &again), BUSY, "this very thread");
    *form = malloc(10);
    *form_bytes = 10;
    return 0;
}

static void discards(void)
{
    skinflint_discardable *item = NULL;
    struct skinflint_discards_options how = {0};
    how.size = sizeof how;
    EXPECT_NULL(skinflint_discards_new(&how), "decodes: null");
    how.decode = decode_itself;
    how.free = free_it;
    how.context = &item;
    skinflint_discards *set = skinflint_discards_new(&how);
    EXPECT_NULL(skinflint_discardable_new(set, NULL, 4), "null");
    EXPECT_NULL(skinflint_discardable_new(set, "abcd", 0), "0 bytes");
    EXPECT_NULL(skinflint_discardable_new((skinflint_discards *)(uintptr_t)1, "abcd", 4), "did not come");
    item = skinflint_discardable_new(set, "abcd", 4);
    struct skinflint_form form;
    EXPECT(skinflint_discardable_pin(item, NULL), ARGUMENT, "null");
    HOLDS(skinflint_discardable_pin(item, &form) == 1 && form.bytes == 10);
    HOLDS(skinflint_discards_end(set) == 1); /* the source stays */
    HOLDS(skinflint_discardable_end(item) == 1);
    EXPECT(skinflint_discardable_end(item), HANDLE, "ended");
    memset(form.form, 1, 10); /* and the form as long as its pin */
    HOLDS(skinflint_pin_release(form.pin) == 1);
    EXPECT(skinflint_pin_release(form.pin), HANDLE, "released before");
    EXPECT(skinflint_discards_relieve(set, 1, NULL), HANDLE, "ended");
}

static void buffers(void)
{
    skinflint_buffer *buffer = skinflint_buffer_new(0);
    struct skinflint_view view;
    HOLDS(skinflint_buffer_append(buffer, NULL, 0) == 1);
    EXPECT(skinflint_buffer_append(buffer, NULL, 5), ARGUMENT, "null");
    HOLDS(skinflint_buffer_append(buffer, "hello", 5) == 1);
    EXPECT(skinflint_buffer_view(buffer, NULL), ARGUMENT, "null");
    HOLDS(skinflint_buffer_view(buffer, &view) == 1 && memcmp(view.data, "hello", 5) == 0);
    EXPECT(skinflint_buffer_append(buffer, view.data, 5), ARGUMENT, "in the buffer itself");
    EXPECT_NULL(skinflint_buffer_reserve(buffer, 0), "0 bytes");
    EXPECT_NULL(skinflint_buffer_reserve(buffer, SIZE_MAX), "no memory");
    EXPECT_NULL(skinflint_buffer_reserve(buffer, SIZE_MAX / 4), "no memory");
    EXPECT(skinflint_buffer_added(buffer, view.room_bytes), ARGUMENT, "there was room for");
    EXPECT(skinflint_buffer_truncate(buffer, 6), ARGUMENT, "it has 5 bytes");
    HOLDS(skinflint_buffer_truncate(buffer, 5) == 1 && skinflint_buffer_shrink(buffer) == 1);
    HOLDS(skinflint_buffer_end(buffer) == 1);
    EXPECT(skinflint_buffer_end(buffer), HANDLE, "ended");
    EXPECT_NULL(skinflint_buffer_new(SIZE_MAX / 2), "no memory");
}

static void *other_thread(void *objects)
{
    void **of_main = objects;
    EXPECT_NULL(skinflint_arena_alloc(of_main[0], 8, 8), "another thread's");
    EXPECT(skinflint_arena_end(of_main[0]), THREAD, "another thread's");
    EXPECT(skinflint_counted_release(of_main[1]), THREAD, "another thread's");
    skinflint_counted *own = skinflint_counted_new(NULL, 1, NULL, NULL);
    EXPECT(skinflint_counted_set(own, 0, of_main[1]), THREAD, "another thread's");
    HOLDS(skinflint_counted_set(own, 0, own) == 1);
    of_main[2] = own; /* a circle, and an arena: left to the thread's end */
    HOLDS(skinflint_arena_alloc(skinflint_arena_begin(), 1000, 0) != NULL);
    return NULL;
}

static void arenas_and_threads(void)
{
    void *objects[3] = {skinflint_arena_begin(), skinflint_counted_new(NULL, 0, NULL, NULL), NULL};
    skinflint_arena *arena = objects[0];
    EXPECT_NULL(skinflint_arena_alloc(NULL, 8, 8), "null");
    EXPECT_NULL(skinflint_arena_alloc(arena, 0, 8), "0 bytes");
    EXPECT_NULL(skinflint_arena_alloc(arena, 8, 3), "an alignment of 3");
    EXPECT_NULL(skinflint_arena_alloc(arena, 8, 8192), "an alignment of 8192");
    EXPECT_NULL(skinflint_arena_alloc(arena, SIZE_MAX, 8), "more than there are");
    EXPECT_NULL(skinflint_arena_alloc(arena, SIZE_MAX / 4, 8), "no memory");
    EXPECT_NULL(skinflint_arena_copy(arena, NULL, 8), "null");
    EXPECT_NULL(skinflint_arena_copy(arena, "", 0), "0 bytes");
    HOLDS((uintptr_t)skinflint_arena_alloc(arena, 1, 4096) % 4096 == 0);
    HOLDS(skinflint_arena_reset(arena) == 1);

    pthread_t thread;
    HOLDS(pthread_create(&thread, NULL, other_thread, objects) == 0 && pthread_join(thread, NULL) == 0);
    EXPECT(skinflint_counted_release(objects[2]), THREAD, "another thread's");
    HOLDS(skinflint_arena_end(arena) == 1);
    EXPECT(skinflint_arena_end(arena), HANDLE, "ended");
    EXPECT_NULL(skinflint_arena_alloc(arena, 8, 8), "ended");
    HOLDS(skinflint_counted_release(objects[1]) == 1);
}

static skinflint_counted *dying;

/* The value is in the middle of its end: the last count of it is gone, and so is the number. */
static void drop_it(void *context, void *payload)
{
    ++*(int *)context;
    (void)payload;
    EXPECT(skinflint_counted_release(dying), HANDLE, "released before");
    HOLDS(skinflint_counted_collect(NULL) == 1);
    skinflint_counted *other = skinflint_counted_new(NULL, 0, NULL, NULL);
    HOLDS(skinflint_counted_release(other) == 1);
}

static void counted(void)
{
    int dropped = 0;
    skinflint_counted *value = dying = skinflint_counted_new(&dropped, 2, drop_it, &dropped), *to;
    skinflint_counted *second = skinflint_counted_share(value);
    HOLDS(second != value && skinflint_counted_same(value, second) == 1);
    EXPECT(skinflint_counted_set(value, 2, value), ARGUMENT, "edge 2 of 2");
    EXPECT(skinflint_counted_edge(value, 0, NULL), ARGUMENT, "null");
    EXPECT(skinflint_counted_edge(value, SIZE_MAX, &to), ARGUMENT, "from 0");
    HOLDS(skinflint_counted_edge(value, 0, &to) == 0 && to == NULL);
    EXPECT_NULL(skinflint_counted_new(&dropped, SIZE_MAX, drop_it, &dropped), "no memory");
    EXPECT(skinflint_counted_resize(value, SIZE_MAX), MEMORY, "no memory");
    EXPECT(skinflint_counted_step(0), ARGUMENT, "0 values");
    EXPECT(skinflint_counted_figures(NULL), ARGUMENT, "null");
    HOLDS(dropped == 0);
    skinflint_weak *weak = skinflint_weak_new(value);
    HOLDS(skinflint_counted_release(second) == 1);
    EXPECT(skinflint_counted_release(second), HANDLE, "released before"); /* the value lives, this count does not */
    EXPECT(skinflint_counted_same(value, second), HANDLE, "released before");
    EXPECT(skinflint_weak_open(weak, NULL), ARGUMENT, "null");
    HOLDS(skinflint_counted_release(value) == 1);
    HOLDS(dropped == 1);
    EXPECT_NULL(skinflint_counted_payload(value), "released before");
    HOLDS(skinflint_weak_open(weak, &to) == 0 && to == NULL);
    EXPECT_NULL(skinflint_weak_new(NULL), "null");
    HOLDS(skinflint_weak_release(weak) == 1);
    EXPECT(skinflint_weak_release(weak), HANDLE, "released before");
}

/* In a child of fork, whose parent's bus has no thread here. */
static void a_bus_of_its_own(void)
{
    HOLDS(skinflint_pressure_press(SKINFLINT_NEAR, 60000, NULL) == 0);
    HOLDS(skinflint_pressure_open() == 1 && skinflint_pressure_open() == 0);
    HOLDS(skinflint_pressure_press(SKINFLINT_NEAR, 60000, NULL) == 1);
    HOLDS(skinflint_pressure_close() == 1 && skinflint_pressure_close() == 0);
}

static void no_bus_to_close(void)
{
    HOLDS(skinflint_pressure_level() == SKINFLINT_CALM);
    HOLDS(skinflint_pressure_close() == 0 && skinflint_pressure_close() == 0);
}

static void in_a_child(void (*act)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(120); /* one that waits for a thread that is not there */
        missed = 0;
        act();
        fflush(stdout);
        _exit(missed != 0);
    }
    int status = -1;
    HOLDS(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void pressure(void)
{
    EXPECT(skinflint_pressure_press(SKINFLINT_CRITICAL, 1000, NULL), ARGUMENT, "skinflint_pressure_open first");
    HOLDS(skinflint_pressure_close() == 0 && skinflint_pressure_level() == SKINFLINT_CALM);
    HOLDS(skinflint_pressure_open() == 1 && skinflint_pressure_open() == 0);
    EXPECT(skinflint_pressure_press(0, 1000, NULL), ARGUMENT, "level 0");
    EXPECT(skinflint_pressure_press(4, 1000, NULL), ARGUMENT, "level 4");
    EXPECT(skinflint_pressure_relieve(0, 1000, NULL), ARGUMENT, "0 bytes");
    in_a_child(a_bus_of_its_own);
    in_a_child(no_bus_to_close);
    HOLDS(skinflint_pressure_close() == 1 && skinflint_pressure_close() == 0);
}

int main(void)
{
    HOLDS(strcmp(skinflint_engines_error(), "") == 0);
    cache_options();
    caches();
    discards();
    buffers();
    arenas_and_threads();
    counted();
    pressure();
    printf("%d told, %d not\n", told, missed);
    return missed != 0;
}
