/*
 * endpoint.c: what a program does to its endpoint: signals, forks, an `out` that is kept, a reporter that removes itself.
 *
 *     endpoint signals FOLDER     opens, blocks SIGUSR1, waits for it by signalfd; says "got 10"
 *     endpoint forks FOLDER       forks; the child closes what it has of the parent's, opens its own, says "child PID"
 *     endpoint late FILE          saves; then uses the `out` of a reporter that has returned
 *     endpoint leaves FILE        saves twice; a reporter removes itself, another fails without a reason
 *     endpoint slow FOLDER        opens; a reporter says "begins" and goes on until it is closed; closes when stdin ends, and says
 *                             "quiet", or "running" if it still did
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "skinflint_report.h"

/* Found at run time, in what is preloaded. A program of one's own links with -lskinflint_report. */
#pragma weak skinflint_report_error
#pragma weak skinflint_reporter_add
#pragma weak skinflint_reporter_remove
#pragma weak skinflint_report_line
#pragma weak skinflint_report_fail
#pragma weak skinflint_report_wants_blocks
#pragma weak skinflint_memory_open
#pragma weak skinflint_memory_close
#pragma weak skinflint_memory_save

static skinflint_report *kept;
static unsigned long own;
static volatile int running;

static void keeps(void *context, skinflint_report *out)
{
    (void)context;
    kept = out;
    skinflint_report_heap(out, "explicit/kept", 8, "In time.");
}

static void leaves(void *context, skinflint_report *out)
{
    (void)context;
    printf("leaves %d\n", skinflint_reporter_remove(own));
    skinflint_report_heap(out, "explicit/leaves", 8, "For the last time.");
}

static void fails(void *context, skinflint_report *out)
{
    (void)context;
    skinflint_report_fail(out, NULL);
}

/* Of the socket, for `slow`. */
static char name[4096];

static void slow(void *context, skinflint_report *out)
{
    (void)context;
    running = 1;
    puts("begins");
    fflush(stdout);
    /* Closing takes the socket's name away, and then waits: a minute at most. */
    for (int ms = 0; access(name, F_OK) == 0 && ms < 60000; ms++)
        /* CLOCK: poll step of a bounded wait */
        usleep(1000);
    skinflint_report_heap(out, "explicit/slow", 8, "Slow.");
    running = 0;
}

/* Many lines, so that an answer does not fit into the socket: who writes it learns that nobody reads. */
static void many(void *context, skinflint_report *out)
{
    (void)context;
    char path[64];
    for (int i = 0; i < 20000; i++) {
        snprintf(path, sizeof path, "explicit/many/%d", i);
        skinflint_report_heap(out, path, 8, "One of many.");
    }
}

static void until_end(void)
{
    while (getchar() != EOF)
        ;
}

static void open_or_end(const char *folder)
{
    if (skinflint_memory_open(folder) != 1) {
        fprintf(stderr, "%s\n", skinflint_report_error());
        exit(5);
    }
}

static int signals(const char *folder)
{
    skinflint_reporter_add("many", many, NULL);
    open_or_end(folder);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, 0);
    struct signalfd_siginfo info;
    printf("ready %d\n", getpid());
    fflush(stdout);
    if (read(fd, &info, sizeof info) != sizeof info)
        return 6;
    printf("got %d\n", (int)info.ssi_signo);
    return 0;
}

static int forks(const char *folder)
{
    skinflint_reporter_add("keeps", keeps, NULL);
    open_or_end(folder);
    pid_t child = fork();
    if (child == 0) {
        skinflint_memory_close();
        open_or_end(folder);
        printf("child %d\n", getpid());
        fflush(stdout);
        until_end();
        skinflint_memory_close();
        return 0;
    }
    until_end();
    int status = 1;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 7;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: endpoint signals|forks|late|leaves|slow FOLDER|FILE\n");
        return 2;
    }
    const char *what = argv[1], *where = argv[2];
    if (strcmp(what, "signals") == 0)
        return signals(where);
    if (strcmp(what, "forks") == 0)
        return forks(where);
    if (strcmp(what, "late") == 0) {
        skinflint_reporter_add("keeps", keeps, NULL);
        printf("saved %d\n", skinflint_memory_save(where));
        printf("late %d %d\n", skinflint_report_heap(kept, "explicit/late", 8, "Late."),
               skinflint_report_wants_blocks(kept));
        printf("%s\n", skinflint_report_error());
        skinflint_report_fail(kept, "too late");
        printf("null %d\n", skinflint_report_heap(NULL, "explicit/late", 8, "Nowhere."));
        return 0;
    }
    if (strcmp(what, "leaves") == 0) {
        own = skinflint_reporter_add("leaves", leaves, NULL);
        skinflint_reporter_add("fails", fails, NULL);
        for (int i = 0; i < 2; i++) {
            printf("saved %d\n", skinflint_memory_save(where));
            printf("%s\n", skinflint_report_error());
        }
        return 0;
    }
    snprintf(name, sizeof name, "%s/%d.report", where, getpid());
    skinflint_reporter_add("slow", slow, NULL);
    open_or_end(where);
    printf("ready %d\n", getpid());
    fflush(stdout);
    until_end();
    skinflint_memory_close();
    puts(running ? "running" : "quiet");
    return 0;
}
