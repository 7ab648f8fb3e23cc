/* Control. A renderer's arena: chunks of 64 KiB are filled in each frame and used again in the next; all are needed in a large
 * frame, and large frames come all the time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"
#include "skinflint.h"

enum { CHUNK = 64 * 1024, FRAMES = 400 };
struct chunk { struct chunk *next; size_t used; char bytes[CHUNK - 16]; };
static struct chunk *first, *current;

static void *arena_take(size_t bytes)
{
    bytes = (bytes + 15) & ~15ul;
    if (!current || current->used + bytes > sizeof current->bytes) {
        struct chunk *next = current ? current->next : first;
        if (!next) {
            next = malloc(sizeof *next);
            next->next = NULL;
            if (current)
                current->next = next;
            else
                first = next;
        }
        next->used = 0;
        current = next;
    }
    void *p = current->bytes + current->used;
    current->used += bytes;
    return p;
}

int main(void)
{
    char name[48];
    unsigned long sum = 0;
    for (int f = 1; f <= FRAMES; f++) {
        snprintf(name, sizeof name, "frame %d begin", f);
        skinflint_mark(name);
        current = NULL;
        for (unsigned n = 20000 + seeded(20000); n--;) {
            size_t bytes = 32 + seeded(400);
            char *item = arena_take(bytes);
            memset(item, f, bytes);
            sum += item[bytes - 1];
        }
        snprintf(name, sizeof name, "frame %d end", f);
        skinflint_mark(name);
    }
    printf("%lu\n", sum);
    return 0;
}
