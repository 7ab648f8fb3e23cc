/* Mails are fetched, shown and dropped; of one in twenty-five a short line stays, which lies between the mails that have gone. All
 * that is free is given back, and next to no page of it is free as a whole.
 * Mended: the lines lie side by side in an array of their own. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { MAILS = 300000, EVERY = 25, STARRED = MAILS / EVERY };
struct star { unsigned mail; char subject[52]; };
static char *mails[MAILS];
static struct star *stars[STARRED];
#ifdef MENDED
static struct star together[STARRED];
#endif

static struct star *star(unsigned n, const char *mail)
{
#ifdef MENDED
    struct star *s = &together[n];
#else
    struct star *s = malloc(sizeof *s);
#endif
    s->mail = n;
    memcpy(s->subject, mail, sizeof s->subject);
    return s;
}

static char *fetch(unsigned n)
{
    unsigned length = 60 + roll(60);
    char *mail = malloc(length);
    memset(mail, 'a' + n % 26, length);
    return mail;
}

int main(void)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < MAILS; i++) {
        mails[i] = fetch(i);
        if (i % EVERY == 0)
            stars[i / EVERY] = star(i / EVERY, mails[i]);
    }
    for (unsigned i = 0; i < MAILS; i++) {
        sum += mails[i][i % 60];
        free(mails[i]);
    }
    malloc_trim(0);
    skinflint_mark("idle");
    for (int pass = 0; pass < 3000; pass++)
        for (int i = 0; i < STARRED; i++)
            sum += stars[i]->subject[pass % 52];
    printf("%lu\n", sum);
    return 0;
}
