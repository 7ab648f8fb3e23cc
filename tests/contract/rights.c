/*
 * rights.c: a program that changes what it may do finds no thread with the rights that it had.
 *
 *   rights drop      root becomes another user, by the C library, in each way, and back, each with work for a purger
 *   rights raw       the same by system calls that pass the C library by
 *   rights alone     calls that the kernel refuses to a process of several threads, or of shared folders
 *   rights filter    a filter that ends the process at clone, process_madvise, membarrier, capget and mincore; memory that
 *                    is free goes back all the same, while the program allocates; before it a filter that does no harm
 *   rights vfork     the child of a vfork gives its rights up; its parent keeps them
 *   rights thread    one thread gives its rights up, and frees memory: that goes back while all rest
 *   rights strict    the kernel's strict mode, in which a process may read, write and end, and not look at the clock
 *   rights clock     that alone: the processor's clock may not be read
 *   rights before    the filter that `filter` sets is there when the program begins, and SKINFLINT_PURGE is off
 *
 * Where there is a purger (skinflint_trim is there) the program waits until it runs before it changes anything, so that
 * what is checked afterwards could be wrong. Without one, all checks hold by themselves.
 *
 * It ends by SIGALRM after 120 s.
 */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern int skinflint_trim(void) __attribute__((weak));

enum { BLOCKS = 40000, BYTES = 1500, OTHER = 65534 };

static void *blocks[BLOCKS];

/* Frees 60 MB, which is enough to begin a purger. */
static void work(void)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = must_malloc(BYTES), 1, BYTES);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* Works until there is a purger. */
static void with_purger(void)
{
    do
        work();
    while (skinflint_trim != NULL && threads() < 2);
}

/* The lines of a thread that say what it may do. */
static void read_rights(const char *task, char *into, size_t room)
{
    char path[300], line[600];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *status = fopen(path, "r");
    into[0] = 0;
    if (status == NULL)
        return;
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "Uid:", 4) == 0 || strncmp(line, "Gid:", 4) == 0 || strncmp(line, "Groups:", 7) == 0 ||
            strncmp(line, "Cap", 3) == 0 || strncmp(line, "NoNewPrivs:", 11) == 0 || strncmp(line, "Seccomp:", 8) == 0)
            strncat(into, line, room - strlen(into) - 1);
    fclose(status);
}

/* Whether every thread may do what the first one may. A thread that is gone by the time it is read has no rights. */
static int all_alike(void)
{
    static char first[4096], other[4096];
    char own[32];
    int alike = 1;
    snprintf(own, sizeof own, "%d", (int)getpid());
    read_rights(own, first, sizeof first);
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        read_rights(entry->d_name, other, sizeof other);
        if (other[0] != 0 && strcmp(first, other) != 0)
            alike = 0;
    }
    closedir(tasks);
    return alike;
}

static void drop(void)
{
    with_purger();
    CHECK(setgroups(0, NULL) == 0);
    CHECK(all_alike());
    with_purger();
    CHECK(setegid(OTHER) == 0 && all_alike());
    with_purger();
    CHECK(seteuid(OTHER) == 0 && all_alike());
    with_purger();
    CHECK(seteuid(0) == 0 && all_alike());
    with_purger();
    CHECK(prctl(PR_CAPBSET_DROP, 21, 0, 0, 0) == 0 && all_alike());
    with_purger();
    CHECK(setresgid(OTHER, OTHER, OTHER) == 0 && all_alike());
    with_purger();
    CHECK(setresuid(OTHER, OTHER, OTHER) == 0 && all_alike());
    with_purger();
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && all_alike());
    with_purger();
    CHECK(setuid(0) == -1 && errno == EPERM);
    CHECK(all_alike());
    say("drop: ok\n");
}

static long raw_call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static void raw(void)
{
    with_purger();
    CHECK(raw_call(SYS_setresuid, OTHER, OTHER, OTHER) == 0);
    /* The purger looks at each wake. */
    while (!all_alike())
        work();
    with_purger();
    CHECK(all_alike());
    say("raw: ok\n");
}

static void tell(const char *what, long result)
{
    say("%s: %s\n", what, result == 0 ? "done" : strerror(errno));
}

static void alone(void)
{
    with_purger();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        with_purger();
        tell("a user namespace", unshare(CLONE_NEWUSER));
        with_purger();
        tell("another mount namespace", unshare(CLONE_NEWNS));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    with_purger();
    tell("the same by its number", syscall(SYS_unshare, CLONE_NEWUSER));
    int own = open("/proc/self/ns/mnt", O_RDONLY);
    CHECK(own >= 0);
    with_purger();
    tell("its own mount namespace", setns(own, CLONE_NEWNS));
    CHECK(all_alike());
}

static long resident_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "VmRSS: %ld", &kb);
    fclose(status);
    return kb;
}

/* A filter that ends the process at what only a purger has the kernel do. */
static void punish(void)
{
#define ENDS_AT(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ENDS_AT(SYS_clone),
        ENDS_AT(SYS_clone3),
        ENDS_AT(SYS_process_madvise),
        ENDS_AT(SYS_membarrier),
        ENDS_AT(SYS_capget),
        ENDS_AT(SYS_mincore),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

/* Blocks that must move to grow, so long that moving their pages may be cheaper than a copy. */
static void grown(void)
{
    enum { LONG = 1 << 20 };
    for (int round = 0; round < 4; round++) {
        char *block = must_malloc(LONG), *behind = must_malloc(LONG);
        memset(block, 'x', LONG);
        block = realloc(block, 4 * LONG);
        CHECK(block != NULL && block[0] == 'x' && block[LONG - 1] == 'x');
        memset(block, 'y', 4 * LONG);
        free(block);
        free(behind);
    }
}

static void filter(void)
{
    struct sock_filter harmless[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog none = {1, harmless};
    with_purger();
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    /* As programs do that ask whether filters are known. */
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1 && errno == EFAULT);
    with_purger();
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &none) == 0);
    CHECK(all_alike());
    with_purger();
    CHECK(all_alike());
    punish();
    CHECK(all_alike());
    work();
    grown();
    CHECK(malloc_trim(0) >= 0);
    work();
    /* It allocates on, a little at a time: what is free goes back meanwhile. */
    while (skinflint_trim != NULL && resident_kb() > 20 * 1024) {
        for (int i = 0; i < 400; i++)
            blocks[i] = must_malloc(100);
        for (int i = 0; i < 400; i++)
            free(blocks[i]);
        usleep(1000); /* CLOCK: poll step of a wait that the alarm bounds */
    }
    CHECK(threads() == 1);
    say("filter: ok\n");
}

static void of_a_vfork(void)
{
    with_purger();
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0)
        _exit(setresgid(OTHER, OTHER, OTHER) != 0 || setresuid(OTHER, OTHER, OTHER) != 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(getuid() == 0 && all_alike());
    with_purger();
    CHECK(all_alike());
    say("vfork: ok\n");
}

static void wait_for_pages(void)
{
    while (skinflint_trim != NULL && resident_kb() > 20 * 1024)
        usleep(1000); /* CLOCK: poll step of a wait that the alarm bounds */
}

static void *less(void *unused)
{
    CHECK(raw_call(SYS_setresuid, OTHER, OTHER, OTHER) == 0);
    work();
    wait_for_pages();
    return unused;
}

static void of_one_thread(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, less, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(getuid() == 0);
    say("thread: ok\n");
}

/* Fills the blocks, and frees them but for the last, and one here and there. */
static void with_holes(void)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = must_malloc(BYTES), 1, BYTES);
    /* What stays is at the end, and here and there. */
    for (int i = 0; i < BLOCKS - 1; i++)
        if (i % 50 != 0)
            free(blocks[i]);
}

/* Does so again and again with the first half of them. */
static void in_the_holes(void)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS / 2; i++)
            if (i % 50 != 0)
                memset(blocks[i] = must_malloc(BYTES), 1, BYTES);
        for (int i = 0; i < BLOCKS / 2; i++)
            if (i % 50 != 0)
                free(blocks[i]);
    }
}

static void strict(void)
{
    with_purger();
    with_holes();
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
    in_the_holes();
    say("strict: ok\nrights ok\n");
    syscall(SYS_exit, 0);
}

static void clockless(void)
{
    /* EINVAL where the processor has no such switch. */
    int there = prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0;
    CHECK(there || errno == EINVAL);
    work();
    with_holes();
    in_the_holes();
    /* A purger would read the clock. */
    CHECK(!there || threads() == 1);
    CHECK(!there || prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0) == 0);
    say("clock: ok\n");
}

static void before(const char *self)
{
    CHECK(setenv("SKINFLINT_PURGE", "off", 1) == 0);
    /* That would be a thread, too, which is asked for. */
    CHECK(unsetenv("SKINFLINT_MEMORY") == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    punish();
    execl(self, self, "begun", (char *)NULL);
    CHECK(0);
}

static void begun(void)
{
    /* Each time other pages are wanted than those that are free. */
    for (int round = 0; round < 4; round++) {
        void *large[40];
        with_holes();
        for (int i = 0; i < 40; i++)
            memset(large[i] = must_malloc(900 * 1000), 1, 900 * 1000);
        for (int i = 0; i < 40; i++)
            free(large[i]);
    }
    grown();
    CHECK(malloc_trim(0) >= 0);
    say("before: ok\n");
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    alarm(120);
    const char *way = arguments[1];
    if (strcmp(way, "drop") == 0)
        drop();
    else if (strcmp(way, "raw") == 0)
        raw();
    else if (strcmp(way, "alone") == 0)
        alone();
    else if (strcmp(way, "filter") == 0)
        filter();
    else if (strcmp(way, "vfork") == 0)
        of_a_vfork();
    else if (strcmp(way, "thread") == 0)
        of_one_thread();
    else if (strcmp(way, "strict") == 0)
        strict();
    else if (strcmp(way, "clock") == 0)
        clockless();
    else if (strcmp(way, "before") == 0)
        before(arguments[0]);
    else if (strcmp(way, "begun") == 0)
        begun();
    else
        CHECK(0);
    say("rights ok\n");
    return 0;
}
