// Forty misuses of blocks, one by number:  bugs list | bugs NUMBER bad|sound SEED
//
// `sound` is the same program without the misuse. What it says on stdout, at once and without the heap:
//   at   the misuse comes next          past     it was made, and nothing stopped it
//   consequence   the program met what the misuse did (a block given out twice, a block changed)
//   refused       the call failed as it should                      end      main returns
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *new_one(size_t) __asm__("_Znwm");
extern void *new_array(size_t) __asm__("_Znam");
extern void delete_one(void *) __asm__("_ZdlPv");
extern void delete_array(void *) __asm__("_ZdaPv");
extern void delete_sized(void *, size_t) __asm__("_ZdlPvm");

enum { LARGE = 300000, PAGE = 4096 };
static int bad;
static size_t size; // of small blocks, by the seed
static char *volatile sink;

static void say(const char *word) {
    if (write(1, word, strlen(word)) < 0 || write(1, "\n", 1) < 0) _exit(99);
}

// An address that the compiler knows nothing of.
static char *at(void *p, long offset) {
    sink = p;
    return sink + offset;
}

static void *give(size_t n) {
    char *p = malloc(n);
    if (p == NULL) _exit(98);
    memset(p, 0x11, n);
    return at(p, 0);
}

// Blocks of other sizes come and go.
static void churn(int turns) {
    static void *kept[64];
    for (int i = 0; i < turns; i++) {
        int j = i * 7 % 64;
        free(kept[j]);
        kept[j] = malloc(400 + i * 13 % 900);
    }
    for (int i = 0; i < 64; i++) free(kept[i]), kept[i] = NULL;
}

// Many blocks of one size, each with bytes of its own: two that overlap show.
static void distinct(size_t n) {
    enum { COUNT = 300 };
    static char *blocks[COUNT];
    int count = n > PAGE ? 6 : COUNT;
    for (int i = 0; i < count; i++) blocks[i] = give(n), memset(blocks[i], i % 251 + 1, n);
    for (int i = 0; i < count; i++)
        for (size_t j = 0; j < n; j++)
            if (blocks[i][j] != (char)(i % 251 + 1)) {
                say("consequence");
                _exit(0);
            }
    for (int i = 0; i < count; i++) free(blocks[i]);
}

static void *freed_there(void *p) {
    free(p);
    return NULL;
}

static void free_elsewhere(void *p) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, freed_there, p) != 0) _exit(97);
    pthread_join(thread, NULL);
}

#define MISUSE(statement) do { say("at"); if (bad) { statement; } say("past"); } while (0)

static void double_at_once(void) { char *p = give(size); free(p); MISUSE(free(at(p, 0))); distinct(size); }
static void double_other_between(void) {
    char *p = give(size), *q = give(size);
    free(p), free(q);
    MISUSE(free(at(p, 0)));
    distinct(size);
}
static void double_after_200(void) {
    static char *w[200];
    char *p = give(size);
    for (int i = 0; i < 200; i++) w[i] = give(size);
    free(p);
    for (int i = 0; i < 200; i++) free(w[i]);
    MISUSE(free(at(p, 0)));
    distinct(size);
}
static void double_second_elsewhere(void) { char *p = give(size); free(p); MISUSE(free_elsewhere(at(p, 0))); distinct(size); }
static void double_first_elsewhere(void) { char *p = give(size); free_elsewhere(p); MISUSE(free(at(p, 0))); distinct(size); }
static void double_large(void) { char *p = give(LARGE); free(p); MISUSE(free(at(p, 0))); distinct(LARGE); }
static void double_aligned(void) { char *p = memalign(256, size); free(at(p, 0)); MISUSE(free(at(p, 0))); distinct(size); }

// The child's end is this program's.
static void in_child(void) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) return;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        kill(getpid(), WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}
static void double_in_child(void) { char *p = give(size); free(p); in_child(); MISUSE(free(at(p, 0))); distinct(size); }

static void free_with(long offset, size_t n) {
    char *p = give(n);
    say("at");
    free(at(p, bad ? offset : 0));
    say("past");
    distinct(n);
}
static void inner_16(void) { free_with(16, size); }
static void inner_1(void) { free_with(1, size); }
static void inner_large(void) { free_with(PAGE, LARGE); }
static void foreign_stack(void) { char bytes[256] = {1}; MISUSE(free(at((char *)((uintptr_t)(bytes + 47) & -16ul), 0))); distinct(size); }
static void foreign_static(void) { static char bytes[256]; MISUSE(free(at((char *)((uintptr_t)(bytes + 47) & -16ul), 0))); distinct(size); }
static char *mapping(void) { return mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void foreign_mapping(void) { char *p = mapping(); MISUSE(free(at(p, PAGE + 16))); distinct(size); }
static void never_given(void) { char *p = give(size); MISUSE(free(at(p, 1l << 30))); distinct(size); }

static void resized(char *p, size_t to, size_t n) {
    say("at");
    if (bad) p = realloc(p, to); else p = realloc(give(n), to);
    say("past");
    if (p != NULL) memset(p, 2, to);
    distinct(n), distinct(to);
}
static void realloc_freed(void) { char *p = give(size); free(p); resized(at(p, 0), size - 1, size); }
static void realloc_freed_larger(void) { char *p = give(size); free(p); resized(at(p, 0), 3000, size); }
static void realloc_freed_large(void) { char *p = give(LARGE); free(p); resized(at(p, 0), LARGE + 50000, LARGE); }
static void realloc_inner(void) { char *p = give(size); resized(at(p, 16), size - 20, size); }
static void realloc_foreign(void) { static char bytes[256]; resized(at((char *)((uintptr_t)(bytes + 47) & -16ul), 0), 200, size); }

// The middle one of three neighbours is written beside; then they are freed.
static void beside(size_t n, long offset, size_t length) {
    char *p[3];
    for (int i = 0; i < 3; i++) p[i] = give(n);
    MISUSE(memset(at(p[1], offset), 0x77, length));
    free(p[1]), free(p[0]), free(p[2]);
    churn(500);
    distinct(n);
}
static void over_1(void) { beside(size, (long)size, 1); }
static void over_page(void) { beside(size, (long)size, PAGE); }
static void over_large(void) { beside(LARGE, LARGE, 1); }
static void under_1(void) { beside(size, -1, 1); }
static void under_large(void) { beside(LARGE, -16, 16); }
static void over_string(void) {
    char *p = give(size), *q = give(size);
    char text[300];
    memset(text, 'x', sizeof text);
    text[bad ? size : size - 1] = 0;
    say("at");
    strcpy(at(p, 0), text);
    say("past");
    free(p), free(q);
    distinct(size);
}

static void late_first_word(void) { char *p = give(size); free(p); MISUSE(memset(at(p, 0), 0x41, 8)); distinct(size); }
static void late_middle(void) { char *p = give(size); free(p); MISUSE(*at(p, (long)size / 2) ^= 1); churn(3000); distinct(size); }
static void late_large(void) { char *p = give(LARGE); free(p); MISUSE(*at(p, 5000) = 1); distinct(LARGE); }
static void late_before_exit(void) { char *p = give(size); free(p); MISUSE(*at(p, 24) ^= 1); }
static void late_moved(void) {
    char *p = give(size), *q = realloc(at(p, 0), 5000);
    MISUSE(memset(at(p, 16), 3, 16));
    distinct(size);
    free(q);
}
static void read_freed(void) { char *p = give(size); free(p); MISUSE(sink = (char *)(uintptr_t)*(volatile char *)at(p, 20)); }
static void read_freed_large(void) { char *p = give(LARGE); free(p); MISUSE(sink = (char *)(uintptr_t)*(volatile char *)at(p, 70000)); }
static void read_beyond_large(void) { char *p = give(LARGE); MISUSE(sink = (char *)(uintptr_t)*(volatile char *)at(p, LARGE / PAGE * PAGE + PAGE)); free(p); }
static void read_unset(void) {
    free(give(size));
    char *p = malloc(size);
    MISUSE(if (*(volatile char *)at(p, 40) == 0x11) say("consequence"));
    free(p);
}

static void delete_wrong_size(void) { char *p = new_one(size); say("at"); delete_sized(at(p, 0), bad ? 2000 : size); say("past"); distinct(size); }
static void delete_of_array(void) { char *p = at(new_array(size), 0); say("at"); if (bad) delete_one(p); else delete_array(p); say("past"); distinct(size); }
static void calloc_wraps(void) {
    volatile size_t count = bad ? (size_t)1 << 61 : 8;
    say("at");
    char *p = calloc(count, 9);
    say(p == NULL ? "refused" : "past");
    if (p != NULL && bad) say("consequence");
    free(p);
}
static void kept_overrun(void) { char *p = give(size); MISUSE(*at(p, (long)size) ^= 1); sink = p; }
static void parents_overrun(void) { char *p = give(size); say("at"); if (bad) *at(p, (long)size) ^= 1; say("past"); in_child(); free(p); distinct(size); }

static const struct { const char *name; void (*run)(void); } BUGS[] = {
#define BUG(name) {#name, name}
    BUG(double_at_once), BUG(double_other_between), BUG(double_after_200), BUG(double_second_elsewhere),
    BUG(double_first_elsewhere), BUG(double_large), BUG(double_aligned), BUG(double_in_child),
    BUG(inner_16), BUG(inner_1), BUG(inner_large), BUG(foreign_stack), BUG(foreign_static), BUG(foreign_mapping), BUG(never_given),
    BUG(realloc_freed), BUG(realloc_freed_larger), BUG(realloc_freed_large), BUG(realloc_inner), BUG(realloc_foreign),
    BUG(over_1), BUG(over_page), BUG(over_large), BUG(over_string), BUG(under_1), BUG(under_large),
    BUG(late_first_word), BUG(late_middle), BUG(late_large), BUG(late_before_exit), BUG(late_moved),
    BUG(read_freed_large), BUG(read_beyond_large), BUG(read_freed), BUG(read_unset),
    BUG(delete_wrong_size), BUG(delete_of_array), BUG(calloc_wraps), BUG(kept_overrun), BUG(parents_overrun),
};
enum { COUNT = sizeof BUGS / sizeof *BUGS };

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (int i = 0; i < COUNT; i++) puts(BUGS[i].name);
        return 0;
    }
    int number = argc == 4 ? atoi(argv[1]) : 0;
    if (number < 1 || number > COUNT) return 2;
    bad = strcmp(argv[2], "bad") == 0;
    // From 65 to 128: seeds differ in the slack behind a block.
    size = 65 + strtoul(argv[3], NULL, 10) * 37 % 64;
    churn(1000);
    BUGS[number - 1].run();
    say("end");
    return 0;
}
