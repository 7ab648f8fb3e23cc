/*
 * A small server of pages: an arena for each request, a cache that gives memory back, packed images that are unpacked
 * while they are shown, a buffer for the answer, and users that follow each other in circles.
 *
 *     cc example.c $(pkg-config --cflags --libs skinflint-engines) && ./a.out
 *
 * It prints what the comments say; each figure is worked out by hand. What it makes it frees, as AddressSanitizer checks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skinflint_engines.h"

/* Ends the program with the library's words where a call failed. */
static void must(int result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, skinflint_engines_error());
        exit(1);
    }
}

static void *there(void *object, const char *what)
{
    must(object == NULL ? -1 : 1, what);
    return object;
}

/* Pages: made once, kept while there is room. */

static size_t pages_freed, pages_told;

static void page_free(void *context, void *page)
{
    (void)context;
    pages_freed++;
    free(page);
}

static void page_gone(void *context, const void *key, size_t key_bytes, void *page, int why)
{
    (void)context, (void)key, (void)key_bytes, (void)page;
    if (why == SKINFLINT_RELEASED)
        pages_told++;
}

static int page_make(void *context, const void *key, size_t key_bytes, void **page, size_t *bytes)
{
    int *made = context;
    char *text = malloc(16 << 10);
    if (text == NULL)
        return 1;
    snprintf(text, 16 << 10, "<h1>%.*s</h1>", (int)key_bytes, (const char *)key);
    ++*made;
    *page = text;
    *bytes = SKINFLINT_MALLOC_BYTES; /* the cache asks malloc */
    return 0;
}

static void pages(void)
{
    int made = 0;
    struct skinflint_cache_options how = {0};
    how.size = sizeof how;
    how.name = "pages";
    how.limit_bytes = 8 << 20;
    how.idle_ms = 30 * 60 * 1000;
    how.gone = page_gone;
    how.free = page_free;
    skinflint_cache *cache = there(skinflint_cache_new(&how), "a cache");

    for (int request = 0; request < 300; request++) {
        skinflint_arena *arena = there(skinflint_arena_begin(), "an arena");
        char *url = there(skinflint_arena_alloc(arena, 32, 1), "room");
        int len = snprintf(url, 32, "/page/%d", request % 100);
        struct skinflint_found found;
        must(skinflint_cache_get_or_make(cache, url, (size_t)len, page_make, &made, &found), "a page");
        if (strncmp(found.value, "<h1>/page/", 10) != 0)
            exit(1);
        must(skinflint_hold_release(found.hold), "release");
        must(skinflint_arena_end(arena), "the end of an arena");
    }
    struct skinflint_cache_figures has = {0};
    has.size = sizeof has;
    must(skinflint_cache_figures(cache, &has), "figures");
    /* Each of 100 pages is made once, and 200 requests find it. */
    printf("pages: %d made, %d hits, %d entries\n", made, (int)has.hits, (int)has.entries);

    /* Memory is short: a quarter of a megabyte is sixteen pages, and goes; with everything else the rest follows. */
    size_t dropped = 0;
    must(skinflint_cache_relieve(cache, 256 << 10, &dropped), "relief");
    printf("relief: %s, told %d\n", dropped >= 256 << 10 ? "enough" : "too little", (int)pages_told);
    must(skinflint_pressure_open(), "the bus");
    struct skinflint_relief brought = {0};
    brought.size = sizeof brought;
    if (skinflint_pressure_press(SKINFLINT_CRITICAL, 60000, &brought) != 1)
        exit(1);
    printf("pressure: asked %d, freed %d\n", (int)brought.asked, (int)pages_freed);
    must(skinflint_cache_end(cache), "the end of a cache");
}

/* Images: three bytes and a count, unpacked while they are shown. */

static int unpack(void *context, const void *packed, size_t bytes, void **form, size_t *form_bytes)
{
    const unsigned char *from = packed;
    (void)context;
    if (bytes != 4)
        return 1;
    *form_bytes = from[3] * (size_t)3;
    *form = malloc(*form_bytes);
    if (*form == NULL)
        return 1;
    for (size_t at = 0; at < *form_bytes; at++)
        ((unsigned char *)*form)[at] = from[at % 3];
    return 0;
}

static void form_free(void *context, void *form)
{
    (void)context;
    free(form);
}

static void images(void)
{
    struct skinflint_discards_options how = {0};
    how.size = sizeof how;
    how.name = "images";
    how.keep_ms = 10000;
    how.decode = unpack;
    how.free = form_free;
    skinflint_discards *set = there(skinflint_discards_new(&how), "a set");
    const unsigned char packed[4] = {1, 2, 3, 200};
    skinflint_discardable *image = there(skinflint_discardable_new(set, packed, sizeof packed), "an image");

    struct skinflint_form shown;
    must(skinflint_discardable_pin(image, &shown), "a pin");
    printf("image: %d bytes of 4, the last %d\n", (int)shown.bytes, ((unsigned char *)shown.form)[599]);
    size_t dropped = 1;
    must(skinflint_discards_relieve(set, SIZE_MAX, &dropped), "relief"); /* it is shown: nothing goes */
    must(skinflint_pin_release(shown.pin), "release");
    must(skinflint_discards_relieve(set, SIZE_MAX, NULL), "relief"); /* now it does */
    printf("image: %d dropped while shown, %d decoded after\n", (int)dropped, skinflint_discardable_is_decoded(image));
    must(skinflint_discardable_end(image), "the end of an image");
    must(skinflint_discards_end(set), "the end of a set");
}

static void answer(void)
{
    skinflint_buffer *buffer = there(skinflint_buffer_new(100), "a buffer");
    for (int line = 0; line < 1000; line++)
        must(skinflint_buffer_append(buffer, "line\n", 5), "append");
    struct skinflint_view view;
    must(skinflint_buffer_view(buffer, &view), "a view");
    printf("answer: %d bytes, slop %s\n", (int)view.bytes, view.held_bytes - view.room_bytes < 16 ? "below 16" : "large");
    must(skinflint_buffer_end(buffer), "the end of a buffer");
}

/* Users: counted, with edges to those that they follow. */

static void user_drop(void *context, void *name)
{
    ++*(int *)context;
    free(name);
}

static skinflint_counted *user(const char *name, int *ended)
{
    char *copy = malloc(strlen(name) + 1);
    strcpy(copy, name);
    return there(skinflint_counted_new(copy, 1, user_drop, ended), "a user");
}

static void users(void)
{
    static int ended;
    skinflint_counted *ann = user("ann", &ended), *bob = user("bob", &ended), *cy = user("cy", &ended);
    must(skinflint_counted_set(ann, 0, bob), "ann follows bob");
    must(skinflint_counted_set(bob, 0, ann), "bob follows ann");
    must(skinflint_counted_set(cy, 0, ann), "cy follows ann");
    skinflint_weak *seen = there(skinflint_weak_new(bob), "weak");
    must(skinflint_counted_release(ann), "release");
    must(skinflint_counted_release(bob), "release");
    uint64_t destroyed = 0;
    must(skinflint_counted_collect(&destroyed), "collect"); /* cy holds the circle */
    printf("users: %d ended while cy follows them\n", ended);
    must(skinflint_counted_release(cy), "release"); /* cy ends by its count, the circle by the collection */
    must(skinflint_counted_collect(&destroyed), "collect");
    skinflint_counted *again;
    int alive = skinflint_weak_open(seen, &again);
    printf("users: %d ended, %d in a circle; bob is %s\n", ended, (int)destroyed, alive == 1 ? "there" : "gone");
    must(skinflint_weak_release(seen), "release");
}

int main(void)
{
    pages();
    images();
    answer();
    users();
    must(skinflint_pressure_close(), "closing");
    return 0;
}
