/* Control: an arena for each frame, reset at its end and kept for the next; marks of words, without numbers. */
#include "skinflint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct chunk {
    struct chunk *next;
    size_t used;
    char data[CHUNK - 16];
};
static struct chunk *first, *now;

__attribute__((noinline)) static struct chunk *chunk(void)
{
    struct chunk *it = malloc(sizeof *it);
    memset(it, 0, sizeof *it);
    return it;
}

static void *get(size_t bytes)
{
    if (!now)
        now = first = chunk();
    if (now->used + bytes > sizeof now->data) {
        if (!now->next)
            now->next = chunk();
        now = now->next;
        now->used = 0;
    }
    now->used += bytes;
    return now->data + now->used - bytes;
}

int main(void)
{
    static const char *const scenes[] = {"menu", "forest", "cave", "sea", "tower"};
    for (int frame = 0; frame < FRAMES; frame++) {
        char name[64];
        snprintf(name, sizeof name, "%s start", scenes[frame % 5]);
        skinflint_mark(name);
        for (int i = 0; i < 3000 + frame * 7 % 500; i++)
            memset(get(300 + i % 100), 1, 300);
        if ((now = first))
            now->used = 0;
        snprintf(name, sizeof name, "%s stop", scenes[frame % 5]);
        skinflint_mark(name);
    }
    return 0;
}
