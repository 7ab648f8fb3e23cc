/* A thread for each job, between marks. Planted: a global list keeps a note of BYTES of each. Mended: it does not. */
#include "skinflint.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct note {
    struct note *next;
    char text[BYTES - 8];
};
static struct note *notes;

__attribute__((noinline)) static struct note *note(int job)
{
    struct note *it = malloc(sizeof *it);
    memset(it->text, job, sizeof it->text);
    return it;
}

static void *work(void *argument)
{
    int job = (int)(long)argument;
    char *scratch[20];
    for (int i = 0; i < 20; i++)
        memset(scratch[i] = malloc(500 + i), 1, 500);
    for (int i = 0; i < NOTES; i++) {
        struct note *it = note(job);
#ifdef MENDED
        free(it);
#else
        it->next = notes;
        notes = it;
#endif
    }
    for (int i = 0; i < 20; i++)
        free(scratch[i]);
    return 0;
}

int main(void)
{
    static const char *const verbs[] = {"resize", "upload", "index", "mail"};
    for (int job = 0; job < JOBS; job++) {
        char name[64];
        pthread_t thread;
        snprintf(name, sizeof name, "%s #%d start", verbs[job % 4], job * 31);
        skinflint_mark(name);
        pthread_create(&thread, 0, work, (void *)(long)job);
        pthread_join(thread, 0);
        snprintf(name, sizeof name, "%s #%d stop", verbs[job % 4], job * 31);
        skinflint_mark(name);
    }
    return 0;
}
