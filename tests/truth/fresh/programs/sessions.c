/* A server's session table. A session has a list of cookies; logging out frees the session and forgets its cookies.
 * Mended: the cookies are freed with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"
#include "skinflint.h"

struct cookie { struct cookie *next; char *value; size_t length; };
struct session { struct session *next; unsigned id; struct cookie *cookies; };
static struct session *buckets[256];

static struct session *session_open(unsigned id)
{
    struct session *s = calloc(1, sizeof *s);
    s->id = id;
    s->next = buckets[id % 256];
    return buckets[id % 256] = s;
}

static void cookie_set(struct session *s, size_t length)
{
    struct cookie *c = malloc(sizeof *c + length);
    c->value = (char *)(c + 1);
    c->length = length;
    memset(c->value, 'a' + s->id % 26, length);
    c->next = s->cookies;
    s->cookies = c;
}

static void session_close(struct session *s)
{
    struct session **at = &buckets[s->id % 256];
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
#ifdef MENDED
    for (struct cookie *c = s->cookies, *next; c; c = next) {
        next = c->next;
        free(c);
    }
#endif
    free(s);
}

int main(void)
{
    char name[64];
    size_t seen = 0;
    char *pages = malloc(6 << 20);
    memset(pages, 1, 6 << 20);
    for (unsigned id = 1; id <= 2500; id++) {
        snprintf(name, sizeof name, "request %u begin", id);
        skinflint_mark(name);
        struct session *s = session_open(id);
        for (int i = 0; i < 4; i++)
            cookie_set(s, 300 + seeded(1500));
        for (struct cookie *c = s->cookies; c; c = c->next)
            seen += c->value[c->length / 2] + pages[seeded(6 << 20)];
        session_close(s);
        snprintf(name, sizeof name, "request %u end", id);
        skinflint_mark(name);
    }
    printf("%zu\n", seen);
    return 0;
}
