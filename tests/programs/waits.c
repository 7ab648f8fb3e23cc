/*
 * waits.c KIND: its first thread waits in one system call, until another thread has read a byte from stdin.
 *
 *   read poll select epoll recv futex sigtimedwait semop sleep crowd churn filtered
 *
 * It answers with its process id, then, when the call is done, with "KIND result". `sleep` waits for ten seconds by
 * the clock, and says what is left of them. `recv` has a timeout, which makes the kernel end it at any stop. `crowd` has
 * 200 threads that take and free blocks of 97 bytes; at the byte each takes one of 89, and they end at a second byte.
 * `churn` does not wait: it takes and frees large blocks, and is inside the allocator nearly all the time.
 * `filtered` waits as `read` does, behind a filter of system calls (seccomp) that ends the process at `socket`.
 * It ends by SIGALRM after 120 s, lest it be forgotten.
 */
#include "check.h"

#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

enum { CROWD = 200 };

static int ends[2];
static int semaphores;
static int word;
static volatile int stage;
static pthread_t first;
static pthread_barrier_t all;

static void *waker(void *kind)
{
    char byte;
    while (read(0, &byte, 1) < 0)
        continue;
    stage = 1;
    if (strcmp(kind, "futex") == 0) {
        __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL);
    } else if (strcmp(kind, "sigtimedwait") == 0) {
        pthread_kill(first, SIGUSR1);
    } else if (strcmp(kind, "semop") == 0) {
        struct sembuf up = {0, 1, 0};
        CHECK(semop(semaphores, &up, 1) == 0);
    } else {
        CHECK(write(ends[1], "x", 1) == 1);
    }
    return NULL;
}

static long slept(void)
{
    struct timespec ten = {10, 0}, left = {0, 0}, begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    /* CLOCK: the call under test; that it lasts at least that long is its promise. */
    int result = nanosleep(&ten, &left);
    clock_gettime(CLOCK_MONOTONIC, &end);
    long took_ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
    CHECK(took_ms >= 9990);
    return result;
}

NOINLINE static void *churn(void *unused)
{
    (void)unused;
    while (stage == 0) {
        void *block = must_malloc(97);
        free(block);
    }
    void *kept = must_malloc(89);
    OPAQUE(kept);
    pthread_barrier_wait(&all);
    while (stage == 1)
        usleep(1000); /* CLOCK: poll step; SIGALRM bounds it */
    return NULL;
}

static long crowd(void)
{
    static pthread_t threads[CROWD];
    char byte;
    CHECK(pthread_barrier_init(&all, NULL, CROWD + 1) == 0);
    for (int i = 0; i < CROWD; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    say("%d\n", (int)getpid());
    CHECK(read(0, &byte, 1) == 1);
    stage = 1;
    pthread_barrier_wait(&all);
    say("taken\n");
    CHECK(read(0, &byte, 1) == 1);
    stage = 2;
    for (int i = 0; i < CROWD; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return CROWD;
}

/* So large that each call takes the arena's lock: smaller ones stay in the thread's own cache. */
NOINLINE static long churned(void)
{
    enum { KEPT = 64 };
    static void *kept[KEPT];
    unsigned at = 1;
    while (stage == 0) {
        at = at * 1103515245 + 12345;
        void **place = &kept[at >> 16 & (KEPT - 1)];
        free(*place);
        *place = must_malloc(2000 + (at >> 8 & 0x3fff));
    }
    for (int i = 0; i < KEPT; i++)
        free(kept[i]);
    return KEPT;
}

static void filter(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

static long waited(const char *kind)
{
    char byte;
    if (strcmp(kind, "read") == 0 || strcmp(kind, "filtered") == 0)
        return read(ends[0], &byte, 1);
    if (strcmp(kind, "recv") == 0)
        return recv(ends[0], &byte, 1, 0);
    if (strcmp(kind, "poll") == 0) {
        struct pollfd end = {ends[0], POLLIN, 0};
        return poll(&end, 1, 100000);
    }
    if (strcmp(kind, "select") == 0) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[0], &set);
        return select(ends[0] + 1, &set, NULL, NULL, NULL);
    }
    if (strcmp(kind, "epoll") == 0) {
        struct epoll_event event = {.events = EPOLLIN};
        int queue = epoll_create1(0);
        CHECK(epoll_ctl(queue, EPOLL_CTL_ADD, ends[0], &event) == 0);
        return epoll_wait(queue, &event, 1, -1);
    }
    if (strcmp(kind, "futex") == 0)
        return syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL);
    if (strcmp(kind, "semop") == 0) {
        struct sembuf down = {0, -1, 0};
        return semop(semaphores, &down, 1);
    }
    if (strcmp(kind, "sigtimedwait") == 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        struct timespec long_time = {100000, 0};
        return sigtimedwait(&set, NULL, &long_time);
    }
    if (strcmp(kind, "churn") == 0)
        return churned();
    CHECK(strcmp(kind, "sleep") == 0);
    return slept();
}

int main(int count, char **arguments)
{
    const char *kind = count > 1 ? arguments[1] : "read";
    alarm(120);
    if (strcmp(kind, "crowd") == 0) {
        say("crowd %ld\n", crowd());
        return 6;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct timeval timeout = {100000, 0};
    if (strcmp(kind, "recv") == 0)
        CHECK(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    CHECK(semaphores >= 0);
    first = pthread_self();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waker, (void *)kind) == 0);
    if (strcmp(kind, "filtered") == 0)
        filter();
    /* errno is the program's: a call that was made in it meanwhile must not show. */
    errno = 77;
    say("%d\n", (int)getpid());
    long result = waited(kind);
    int error = errno;
    semctl(semaphores, 0, IPC_RMID);
    say("%s %ld %d\n", kind, result, error);
    return 6;
}
