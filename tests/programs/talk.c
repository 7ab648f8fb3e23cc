/*
 * talk.c: does what it is told on stdin, a letter at a time, and answers with a line when it is done.
 *
 *   (at first)  answers with its process id
 *   a           takes 10 x 61 and frees 4 of them: 6 stay
 *   b           takes 10 x 67, all stay
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

NOINLINE static void second(void)
{
    for (int i = 0; i < 10; i++)
        must_malloc(67);
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
        say("done %c\n", letter);
    }
}
