/*
 * talk.c: does what it is told on stdin, a letter at a time, and answers with a line when it is done.
 *
 *   (at first)  answers with its process id
 *   a           takes 10 x 61 and frees 4 of them: 6 stay
 *   b           takes 10 x 67, all stay
 *   f           frees what the last b took, and not again
 *   r           makes each of them 97 by realloc
 *   q           ends with status 5; so does the end of stdin
 *
 * SIGTERM makes it end with status 17, from the handler. It ends by SIGALRM after 120 s, lest it be
 * forgotten.
 */
#include "check.h"

#include <signal.h>

NOINLINE static void first(void)
{
    void *blocks[10];
    for (int i = 0; i < 10; i++)
        blocks[i] = must_malloc(61);
    for (int i = 0; i < 4; i++)
        free(blocks[i]);
}

static void *taken[10];

NOINLINE static void second(void)
{
    for (int i = 0; i < 10; i++)
        taken[i] = must_malloc(67);
}

NOINLINE static void give_back(void)
{
    for (int i = 0; i < 10; i++) {
        free(taken[i]);
        taken[i] = NULL;
    }
}

NOINLINE static void grow(void)
{
    for (int i = 0; i < 10; i++)
        CHECK((taken[i] = realloc(taken[i], 97)) != NULL);
}

static void on_term(int number)
{
    (void)number;
    _exit(17);
}

int main(void)
{
    char letter;
    CHECK(signal(SIGTERM, on_term) != SIG_ERR);
    alarm(120);
    say("%d\n", (int)getpid());
    for (;;) {
        ssize_t n = read(0, &letter, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || letter == 'q')
            return 5;
        if (letter == 'a')
            first();
        if (letter == 'b')
            second();
        if (letter == 'f')
            give_back();
        if (letter == 'r')
            grow();
        say("done %c\n", letter);
    }
}
