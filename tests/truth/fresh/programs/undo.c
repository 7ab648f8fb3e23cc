/* An editor's undo history: each change keeps the lines that it replaced, for ever.
 * Mended: the last hundred changes can be undone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

enum { LINES = 4000, WIDTH = 120, CHANGES = 9000, KEPT = 100 };
struct change { struct change *older, *newer; int line, lines; char *before; };
static char (*document)[WIDTH];
static struct change *newest, *oldest;
static int depth;

static void *xmalloc(size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        abort();
    return p;
}

static void undo_push(int line, int lines)
{
    struct change *c = xmalloc(sizeof *c);
    c->before = xmalloc(lines * WIDTH);
    memcpy(c->before, document[line], lines * WIDTH);
    c->line = line;
    c->lines = lines;
    c->newer = NULL;
    c->older = newest;
    if (newest)
        newest->newer = c;
    else
        oldest = c;
    newest = c;
#ifdef MENDED
    if (++depth > KEPT) {
        struct change *gone = oldest;
        oldest = gone->newer;
        oldest->older = NULL;
        free(gone->before);
        free(gone);
        depth--;
    }
#endif
}

static void edit(int line, int lines)
{
    undo_push(line, lines);
    for (int i = 0; i < lines; i++)
        for (int c = 0; c < WIDTH; c++)
            document[line + i][c] = 'a' + (document[line + i][c] + c) % 26;
}

int main(void)
{
    unsigned long sum = 0;
    document = calloc(LINES, WIDTH);
    for (int i = 0; i < CHANGES; i++) {
        int lines = 5 + seeded(30);
        edit(seeded(LINES - lines), lines);
        for (int l = 0; l < LINES; l += 7)
            sum += document[l][i % WIDTH];
    }
    for (int i = 0; newest && i < 50; i++, newest = newest->older)
        memcpy(document[newest->line], newest->before, newest->lines * WIDTH);
    printf("%lu\n", sum + document[100][10]);
    return 0;
}
