/* A search daemon rebuilds its index: postings in small blocks, written out and released; the generation record, made last,
 * stays. Then it waits for questions. Mended: malloc_trim after the rebuild. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "seeded.h"
#include "skinflint.h"

struct posting { struct posting *next; unsigned document, weight; char context[]; };
struct generation { unsigned number, terms, crc; };
enum { TERMS = 20000, POSTINGS = 180000 };
static struct posting *terms[TERMS];

static struct generation *rebuild(unsigned number)
{
    unsigned crc = 0;
    for (int i = 0; i < POSTINGS; i++) {
        size_t length = 40 + seeded(300);
        struct posting *p = malloc(sizeof *p + length);
        memset(p->context, i, length);
        p->document = i / 20;
        p->weight = seeded(100);
        unsigned term = seeded(TERMS);
        p->next = terms[term];
        terms[term] = p;
    }
    struct generation *g = malloc(sizeof *g);
    for (int t = 0; t < TERMS; t++) {
        for (struct posting *p = terms[t], *next; p; p = next) {
            next = p->next;
            crc = crc * 31 + p->weight + p->context[3];
            free(p);
        }
        terms[t] = NULL;
    }
    *g = (struct generation){number, TERMS, crc};
    return g;
}

int main(void)
{
    struct generation *now = rebuild(1);
#ifdef MENDED
    malloc_trim(0);
#endif
    /* CLOCK: a program that goes on, at rest; nothing is judged by it */
    usleep(100000);
    skinflint_mark("idle");
    for (int i = 0; i < 40; i++) {
        char *answer = malloc(500);
        memset(answer, i, 500);
        /* CLOCK: a program that goes on, at rest; nothing is judged by it */
        usleep(10000);
        now->crc += answer[i];
        free(answer);
    }
    printf("%u\n", now->crc);
    return 0;
}
