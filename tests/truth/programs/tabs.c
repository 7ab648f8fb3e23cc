/* Tabs of different names, of which the next opens before the last is closed. Planted: a history keeps what each has
 * drawn. Mended: it is dropped when the tab is closed. LAST: a control, which keeps the last so many. */
#include "skinflint.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char *drawn[TABS][PARTS];

__attribute__((noinline)) static char *draw(size_t bytes)
{
    char *it = malloc(bytes);
    memset(it, 1, bytes);
    return it;
}

static void mark(int tab, const char *what)
{
    static const char *const places[] = {"news", "mail", "wiki", "maps", "shop", "chat", "code"};
    char name[64];
    snprintf(name, sizeof name, "%s %c%c %s", places[tab % 7], 'a' + tab / 7 % 26, 'a' + tab / 182, what);
    skinflint_mark(name);
}

static void drop(int tab)
{
    for (int i = 0; i < PARTS; i++)
        free(drawn[tab][i]);
}

int main(void)
{
    for (int tab = 0; tab < TABS; tab++) {
        mark(tab, "begin");
        for (int i = 0; i < PARTS; i++)
            drawn[tab][i] = draw(200 + (tab * 13 + i * 7) % 400);
        if (tab > 0) {
#ifdef MENDED
            drop(tab - 1);
#endif
            mark(tab - 1, "end");
        }
#ifdef LAST
        if (tab >= LAST)
            drop(tab - LAST);
#endif
    }
#ifdef MENDED
    drop(TABS - 1);
#endif
    mark(TABS - 1, "end");
    return 0;
}
