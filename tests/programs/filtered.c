/*
 * filtered.c HOW: programs that install a filter of system calls (seccomp) that kills.
 *
 *   own       fork; the child installs a filter that kills at socket before its first heap call     (if nothing is given)
 *   copy      a filter that kills at socket, then fork
 *   number    the same, installed by the number of seccomp
 *   program   a filter that kills at socket, then fork and exec of this program ("child") with its own list of variables
 *   spawn     the same by posix_spawn
 *   vfork     a child of vfork installs the filter and becomes this program ("child"); another one becomes it without
 *   events    a filter that kills at getpid, then 300 blocks more
 *   threads   a filter that kills at ioctl, then a thread with 100 blocks of 227
 *   unseen    the filter of "copy", installed by an instruction
 *
 * A child makes 100 blocks of 229, which live to its end, and exits with 3; so does "child".
 */
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
static char self[4096];

static int by_instruction(long option, long mode, void *program)
{
    long result;
    register long fourth __asm__("r10") = 0;
    register long fifth __asm__("r8") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_prctl), "D"(option), "S"(mode), "d"(program), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
    return (int)result;
}

/* Installs a filter that kills at a call. */
static void kill_at(long number, const char *how)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    /* What programs ask before: whether the kernel knows filters. */
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1 && errno == EFAULT);
    if (!strcmp(how, "number"))
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    else if (!strcmp(how, "unseen"))
        CHECK(by_instruction(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    else
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
}

static NOINLINE void blocks(int count, size_t bytes)
{
    for (int i = 0; i < count; i++)
        memset(must_malloc(bytes), i, bytes);
    NO_TAIL_CALL();
}

static void child(void)
{
    blocks(100, 229);
    exit(3);
}

static void wait_for(pid_t pid, int how)
{
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        status = WTERMSIG(status);
    if (status != how) {
        say("filtered: a child ended with status %x\n", status);
        exit(1);
    }
}

static NOINLINE void by_vfork(char **words, int with)
{
    pid_t pid = vfork();
    if (pid == 0) {
        if (with)
            kill_at(SYS_socket, "vfork");
        execv(self, words);
        _exit(127);
    }
    wait_for(pid, 3 << 8);
}

static void *in_thread(void *unused)
{
    blocks(100, 227);
    return unused;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "own";
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(length > 0);
    char *words[] = {self, (char *)"child", NULL};
    pid_t pid;

    if (!strcmp(how, "child"))
        child();
    blocks(10, 231);
    /* A list of the program's own with the same variables. */
    int count = 0;
    while (environ[count])
        count++;
    char *variables[count + 1];
    memcpy(variables, environ, (count + 1) * sizeof *variables);

    if (!strcmp(how, "own")) {
        pid = fork();
        if (pid == 0) {
            kill_at(SYS_socket, how);
            child();
        }
        wait_for(pid, 3 << 8);
    } else if (!strcmp(how, "copy") || !strcmp(how, "number") || !strcmp(how, "unseen")) {
        kill_at(SYS_socket, how);
        pid = fork();
        if (pid == 0)
            child();
        /* Of a filter that it has not seen, a recorder can only die. */
        wait_for(pid, strcmp(how, "unseen") || !getenv("LD_PRELOAD") ? 3 << 8 : SIGSYS);
    } else if (!strcmp(how, "program")) {
        kill_at(SYS_socket, how);
        pid = fork();
        if (pid == 0) {
            execve(self, words, variables);
            _exit(127);
        }
        wait_for(pid, 3 << 8);
    } else if (!strcmp(how, "spawn")) {
        kill_at(SYS_socket, how);
        CHECK(posix_spawn(&pid, self, NULL, NULL, words, environ) == 0);
        wait_for(pid, 3 << 8);
    } else if (!strcmp(how, "vfork")) {
        by_vfork(words, 1);
        by_vfork(words, 0);
    } else if (!strcmp(how, "events")) {
        kill_at(SYS_getpid, how);
        blocks(300, 233);
    } else if (!strcmp(how, "threads")) {
        pthread_t thread;
        kill_at(SYS_ioctl, how);
        CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    } else {
        CHECK(0);
    }
    say("filtered: %s\n", how);
    return 0;
}
