/* A batch of messages is taken apart into many small pieces, and now and then an audit record is written that stays. When the
 * batch is done its pieces are released, and malloc_trim is called; the records lie on nearly every page.
 * Mended: audit records lie together, eighty to a block. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "seeded.h"
#include "skinflint.h"

struct audit { struct audit *next; unsigned message, code; char note[32]; };
enum { PIECES = 160000, TOGETHER = 80 };
static struct audit *audits;
static char *pieces[PIECES];

static void audit_add(unsigned message, unsigned code)
{
#ifdef MENDED
    static struct audit *block;
    static int used = TOGETHER;
    if (used == TOGETHER) {
        block = malloc(TOGETHER * sizeof *block);
        used = 0;
    }
    struct audit *a = &block[used++];
#else
    struct audit *a = malloc(sizeof *a);
#endif
    a->message = message;
    a->code = code;
    snprintf(a->note, sizeof a->note, "message %u: code %u", message, code);
    a->next = audits;
    audits = a;
}

int main(void)
{
    unsigned sum = 0;
    for (int i = 0; i < PIECES; i++) {
        size_t length = 60 + seeded(240);
        pieces[i] = malloc(length);
        memset(pieces[i], i, length);
        if (i % 10 == 9)
            audit_add(i / 10, seeded(600));
    }
    for (int i = 0; i < PIECES; i++) {
        sum += pieces[i][50];
        free(pieces[i]);
    }
    malloc_trim(0);
    /* CLOCK: a program that goes on, at rest; nothing is judged by it */
    usleep(100000);
    skinflint_mark("idle");
    for (int i = 0; i < 30; i++) {
        char *beat = malloc(48);
        memset(beat, i, 48);
        /* CLOCK: a program that goes on, at rest; nothing is judged by it */
        usleep(10000);
        sum += beat[9];
        free(beat);
    }
    for (struct audit *a = audits; a; a = a->next)
        sum += a->code;
    printf("%u\n", sum);
    return 0;
}
