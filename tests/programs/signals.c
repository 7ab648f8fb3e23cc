/*
 * signals.c: malloc in signal handlers, on an alternate stack, at moments nobody chose; and a
 * handler that leaves by siglongjmp.
 *
 * malloc is not async-signal-safe: the main thread therefore never allocates while the timer
 * runs; it works in a function that calls no libc, so the handler's malloc interrupts plain code.
 *
 *   part 1  setitimer every 1 ms; the handler takes 100 bytes and frees it, until 200 signals came
 *           (200 x 100, none live), while main recurses to depth 50 and back all the time
 *   part 2  100 x raise(SIGUSR1); the handler takes 211 bytes, keeps the first 10, frees others,
 *           and leaves by siglongjmp from the alternate stack (100 x 211, 10 live at the end)
 *   part 3  50 blocks of 307 from main, after all that: stacks must be main's own again (50 live)
 */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t ticks, jumps;
static sigjmp_buf back;
static char alternate[64 * 1024];

NOINLINE static void allocate_in_handler(void)
{
    if (ticks < 200) {
        void *block = must_malloc(100);
        free(block);
        ticks = ticks + 1;
    }
}

static void on_alarm(int number)
{
    int saved = errno;
    (void)number;
    allocate_in_handler();
    errno = saved;
}

static void on_user(int number)
{
    (void)number;
    void *block = must_malloc(211);
    if (jumps >= 10)
        free(block);
    jumps = jumps + 1;
    siglongjmp(back, 1);
}

NOINLINE static unsigned long work(unsigned depth)
{
    unsigned long sum = 0;
    for (unsigned i = 0; i < 100; i++) {
        sum += i;
        OPAQUE(sum);
    }
    if (depth > 0)
        sum += work(depth - 1);
    NO_TAIL_CALL();
    return sum;
}

NOINLINE static void after(void)
{
    for (int i = 0; i < 50; i++)
        must_malloc(307);
}

static void handle(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigemptyset(&action.sa_mask);
    CHECK(sigaction(number, &action, NULL) == 0);
}

int main(void)
{
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    CHECK(sigaltstack(&stack, NULL) == 0);
    handle(SIGALRM, on_alarm);
    handle(SIGUSR1, on_user);
    struct itimerval every = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    while (ticks < 200)
        CHECK(work(50) == 51 * 4950);
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    for (volatile int i = 0; i < 100; i++)
        if (sigsetjmp(back, 1) == 0)
            raise(SIGUSR1);
    after();
    say("signals: %d on the timer, %d left by siglongjmp\n", (int)ticks, (int)jumps);
    return 0;
}
