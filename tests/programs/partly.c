/*
 * partly.c: blocks of which only a part is ever touched.
 *
 *   64 MiB by calloc, of which the first 8 MiB are written; 32 MiB by malloc, written in 16 steps of 1 MiB with a
 *   pause after each (so that a recorder's snapshots see it grow); 20000 blocks of 600 bytes, written; then 10 ms
 *   of nothing. 36 MiB of memory are needed and 107 MiB asked for. All are live at the end.
 * Prints by how many MiB its anonymous memory grew, rounded.
 */
#include "check.h"

#include <fcntl.h>
#include <time.h>

static void pause_ms(long ms)
{
    struct timespec time = {0, ms * 1000000};
    /* CLOCK: it grows slowly, so that there is more than one look; none is expected at a moment */
    while (nanosleep(&time, &time) != 0)
        CHECK(errno == EINTR);
}

static long anonymous_kb(void)
{
    static char text[4096];
    int file = open("/proc/self/status", O_RDONLY);
    CHECK(file >= 0);
    ssize_t length = read(file, text, sizeof text - 1);
    CHECK(length > 0);
    close(file);
    char *found = strstr(text, "RssAnon:");
    CHECK(found != NULL);
    return strtol(found + 8, NULL, 10);
}

int main(void)
{
    long before = anonymous_kb();
    char *zeroed = calloc(64, 1 << 20);
    char *grown = must_malloc(32 << 20);
    CHECK(zeroed != NULL);
    memset(zeroed, 1, 8 << 20);
    for (int step = 0; step < 16; step++) {
        memset(grown + ((size_t)step << 20), 1, 1 << 20);
        pause_ms(4);
    }
    for (int i = 0; i < 20000; i++)
        memset(must_malloc(600), 1, 600);
    pause_ms(10);
    OPAQUE(zeroed);
    OPAQUE(grown);
    say("partly: %ld MiB\n", (anonymous_kb() - before + 512) / 1024);
    return 0;
}
