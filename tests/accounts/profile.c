/*
 * profile.c: a program whose sampled heap profile is predicted by hand.
 *
 *   profile          keeps 4,000 blocks of 3,000 bytes in holds(), frees as many of drops(); says where both functions are
 *   profile ask      the same, and asks for the profile by the functions of skinflint.h, from its own start on: to stdout
 *   profile refused  asks for what cannot be had
 *   profile wait     the same as without a word, then waits for the end of its input
 *   profile churn    the same, and takes and frees blocks in drops() until its input ends
 *
 * Not here: what a profile says of them (faces/cli/tests/accounts/profile.rs).
 */
#include "names.h"

#include <poll.h>

enum { BLOCKS = 4000, BYTES = 3000 };
static void *kept[BLOCKS];
static void *dropped[BLOCKS];

static __attribute__((noinline)) void *holds(void)
{
    void *block = malloc(BYTES);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static __attribute__((noinline)) void *drops(void)
{
    void *block = malloc(BYTES);
    __asm__ volatile("nop" : "+r"(block));
    return block;
}

static void refused(void)
{
    CHECK(CALL(skinflint_profile_write)(1, SKINFLINT_PROFILE_IN_USE) == ENODATA);
    CHECK(CALL(skinflint_profile_set_rate)(1023) == 0);
    CHECK(CALL(skinflint_profile_set_rate)((size_t)1 << 31) == 0);
    CHECK(CALL(skinflint_profile_start)() == 1);
    CHECK(CALL(skinflint_profile_write)(1, 2) == EINVAL);
    CHECK(CALL(skinflint_profile_write)(999, SKINFLINT_PROFILE_IN_USE) == EBADF);
    CALL(skinflint_profile_stop)();
    puts("ok");
}

/* Waits for the end of the input, with or without work meanwhile. */
static void wait_for_end(int works)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char byte;
    for (;;) {
        if (poll(&input, 1, works ? 0 : -1) != 0 && read(0, &byte, 1) <= 0)
            return;
        for (int i = 0; works && i < 1000; i++)
            free(drops());
    }
}

int main(int argc, char **argv)
{
    int ask = argc > 1 && !strcmp(argv[1], "ask");
    int churn = argc > 1 && !strcmp(argv[1], "churn");
    int wait = churn || (argc > 1 && !strcmp(argv[1], "wait"));
    if (argc > 1 && !ask && !wait) {
        refused();
        return 0;
    }
    if (ask) {
        CHECK(CALL(skinflint_profile_set_rate)(16 << 10) == 1);
        CHECK(CALL(skinflint_profile_start)() == 1);
    }
    for (int i = 0; i < BLOCKS; i++) {
        kept[i] = holds();
        dropped[i] = drops();
        CHECK(kept[i] && dropped[i]);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(dropped[i]);
    printf("%d %p %p\n", (int)getpid(), (void *)holds, (void *)drops);
    fflush(stdout);
    if (wait)
        wait_for_end(churn);
    if (ask)
        CHECK(CALL(skinflint_profile_write)(1, SKINFLINT_PROFILE_IN_USE) == 0);
    return 0;
}
