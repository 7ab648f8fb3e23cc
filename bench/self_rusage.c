/* self_rusage: runs one command and writes what the kernel charged to it, and to nothing else.
 *
 *   self_rusage OUT [-e NAME=VALUE]... -- CMD ARGS...
 *
 *   python3 ──► (a recorder ──►) self_rusage ──fork, exec──► CMD        OUT: one line of JSON
 *
 * Why it exists: a recorder puts processes of its own between us and the program (a collector, a
 * compressor, an interpreter), so the rusage that a caller sees is the sum of all of them. Here
 * wait4 is called by the program's own parent. Why in C: the kernel carries the high-water mark of
 * resident memory over fork and exec, so a parent as large as an interpreter would hide a small
 * program's own peak; this one is smaller than any program that is measured.
 *
 * U1  Standard streams, working directory and environment pass through; -e changes the command's
 *     environment only (to preload something into the command but not into this wrapper).
 * U2  Exits as the command did; 128 + n if signal n ended it; 127 if it could not be started.
 * U3  OUT is complete or absent.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long micros(struct timeval t) { return (long long)t.tv_sec * 1000000 + t.tv_usec; }

static int fail(const char *what, const char *which) {
    fprintf(stderr, "self_rusage: %s %s: %s\n", what, which, strerror(errno));
    return 127;
}

static void run_command(char **env, int env_count, char **command) {
    for (int i = 0; i < env_count; i++) putenv(env[i]);
    execvp(command[0], command);
    _exit(fail("cannot run", command[0]));
}

static int write_result(const char *out, pid_t pid, int status, double wall, struct rusage *use) {
    FILE *file = fopen(out, "w");
    if (!file) return fail("cannot write", out);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    fprintf(file,
            "{\"pid\": %d, \"status\": %d, \"user_us\": %lld, \"sys_us\": %lld, "
            "\"wall_s\": %.6f, \"max_rss_kb\": %ld, \"minor_faults\": %ld}\n",
            (int)pid, code, micros(use->ru_utime), micros(use->ru_stime), wall, use->ru_maxrss, use->ru_minflt);
    return fclose(file) ? fail("cannot write", out) : 0;
}

int main(int argc, char **argv) {
    char *env[16];
    int env_count = 0, at = 2;
    while (at + 1 < argc && !strcmp(argv[at], "-e") && env_count < 16) {
        env[env_count++] = argv[at + 1];
        at += 2;
    }
    if (at + 1 >= argc || strcmp(argv[at], "--")) {
        fprintf(stderr, "usage: self_rusage OUT [-e NAME=VALUE]... -- CMD ARGS...\n");
        return 2;
    }
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t pid = fork();
    if (pid < 0) return fail("cannot fork for", argv[at + 1]);
    if (pid == 0) run_command(env, env_count, argv + at + 1);
    int status = 0;
    struct rusage use;
    while (wait4(pid, &status, 0, &use) < 0)
        if (errno != EINTR) return fail("cannot wait for", argv[at + 1]);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double wall = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
    int failed = write_result(argv[1], pid, status, wall, &use);
    if (failed) return failed;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
