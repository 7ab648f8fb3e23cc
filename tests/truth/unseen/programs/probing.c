/* A control: a hash table with open addresses grows by one and a half and is at most three quarters full. The free places lie
 * among the others, so that no page of it is without use, and searching needs them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

struct place { unsigned key, count; };
struct table { struct place *places; size_t room, used; };

static struct place *find(struct table *t, unsigned key)
{
    size_t at = (key * 0x9e3779b97f4a7c15ull >> 20) % t->room;
    while (t->places[at].count && t->places[at].key != key)
        at = at + 1 == t->room ? 0 : at + 1;
    return &t->places[at];
}

static void grow(struct table *t)
{
    struct table larger = { calloc(t->room + t->room / 2, sizeof(struct place)), t->room + t->room / 2, t->used };
    for (size_t i = 0; i < t->room; i++)
        if (t->places[i].count)
            *find(&larger, t->places[i].key) = t->places[i];
    free(t->places);
    *t = larger;
}

static void count(struct table *t, unsigned key)
{
    struct place *p = find(t, key);
    if (!p->count) {
        if (t->used * 4 >= t->room * 3) {
            grow(t);
            p = find(t, key);
        }
        t->used++;
        p->key = key;
    }
    p->count++;
}

int main(void)
{
    struct table t = { calloc(1024, sizeof(struct place)), 1024, 0 };
    unsigned long sum = 0;
    for (int i = 0; i < 3000000; i++)
        count(&t, roll(1000000));
    skinflint_mark("counted");
    for (size_t i = 0; i < t.room; i++)
        sum += t.places[i].count * (t.places[i].key % 7);
    printf("%lu\n", sum);
    free(t.places);
    return 0;
}
