// One fault, named by the argument; "survived" if nothing stopped it.

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "operators.h"

static char *volatile block;
static volatile char sink;

// The functions that the stacks must name. What follows the call keeps it from being a jump.
__attribute__((noinline)) static void make_it(size_t n) {
    block = malloc(n);
    memset(block, 1, n);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void drop_it(void) {
    free(block);
    __asm__ volatile("" ::: "memory");
}

static void *in_thread(void *function) {
    ((void (*)(void))function)();
    return NULL;
}

// A copy of the address, so that the compiler has no opinion of it.
static char *at(long offset) {
    return (char *)((uintptr_t)block + offset);
}

static void thread(void (*function)(void)) {
    pthread_t id;
    if (pthread_create(&id, NULL, in_thread, (void *)function) != 0) exit(3);
    pthread_join(id, NULL);
}

static void double_small(void) { make_it(40); drop_it(); drop_it(); }
static void double_large(void) { make_it(400000); drop_it(); drop_it(); }
static void double_remote(void) { make_it(40); thread(drop_it); thread(drop_it); }
static void double_mixed(void) { make_it(40); thread(drop_it); drop_it(); }
static void inside_small(void) { make_it(48); free(at(16)); }
static void inside_large(void) { make_it(400000); free(at(8192)); }

static void delete_other_size(void) { delete_one_sized(new_one(41), 24); }
static void delete_other_size_large(void) { delete_array_sized(new_array(400000), 400016); }
static void delete_other_size_aligned(void) { delete_one_sized_aligned(new_one_aligned(100, 64), 128, 64); }
static void free_other_size(void) { if (free_sized) free_sized(malloc(41), 40); }
static void delete_an_array(void) { delete_one(new_array(40)); }
static void free_an_array(void) { free(new_array(40)); }
static void delete_one_as_array(void) { delete_array(new_one(40)); }
static void delete_one_as_array_aligned(void) { delete_array_aligned(new_one_aligned(100, 64), 64); }

static void foreign(void) {
    static char bytes[64];
    block = bytes;
    drop_it();
}

static void foreign_mapping(void) {
    block = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    drop_it();
}

static void large_behind(void) { make_it(400000); *at(400000) = 2; }
static void large_before(void) { make_it(400000); *at(-4096) = 2; }
static void large_slack(void) { make_it(400001); *at(400001) ^= 1; drop_it(); }
static void large_late(void) { make_it(400000); drop_it(); sink = *at(5); }
static void small_behind(void) { make_it(40); *at(40) ^= 1; drop_it(); }
static void small_fill(void) { make_it(33); *at(33) ^= 1; drop_it(); }
static void small_realloc(void) { make_it(40); *at(40) ^= 1; block = realloc(block, 90); }

// A write to a freed block, and then enough frees that it leaves the quarantine.
static void late_write(void) {
    make_it(40);
    drop_it();
    *at(8) = 2;
    for (int i = 0; i < 100000; i++) free(malloc(100));
}

// The same, and then enough blocks that the slot is handed out again.
static void late_write_reused(void) {
    make_it(40);
    drop_it();
    *at(8) = 2;
    for (int i = 0; i < 2000; i++) sink = *(char *)malloc(40);
}

// What no free comes to find.
static void kept_behind(void) { make_it(33); *at(34) ^= 1; }
static void late_write_exit(void) { make_it(40); drop_it(); *at(8) = 2; }
static void large_front(void) { make_it(400000); *at(-16) ^= 1; drop_it(); }

static void late_read(void) { make_it(40); drop_it(); sink = *at(3); }
static void late_read_thread(void) { make_it(40); thread(drop_it); sink = *at(3); }
static void late_store(void) { make_it(40); drop_it(); *at(3) = 2; }

// By turns a sample stands at the right and at the left of its slot: of two, one each.
static void sample_behind(void) {
    make_it(48);
    *at(48) = 2;
    make_it(48);
    *at(48) = 2;
}

static void sample_before(void) {
    make_it(48);
    char *first = at(-1);
    make_it(48);
    char *second = at(-1);
    if (((uintptr_t)first & 4095) == 4095) *first = 2;
    if (((uintptr_t)second & 4095) == 4095) *second = 2;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    static const char text[] = "the program's own handler\n";
    if (info->si_addr == at(3) && write(1, text, sizeof text - 1) > 0) _exit(7);
    _exit(8);
}

static void own_handler(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    late_read();
}

static void own_fault(void) {
    raise(SIGSEGV);
}

static void wild(void) {
    *(volatile char *)16 = 1;
}

// What is in a block when it comes, and when it is gone.
static void contents(void) {
    make_it(40);
    drop_it();
    printf("%d %d\n", *at(0), *at(39));
    unsigned char *fresh = malloc(40);
    printf("%d %d\n", fresh[0], fresh[39]);
}

static const struct {
    const char *name;
    void (*run)(void);
} FAULTS[] = {
#define FAULT(name) {#name, name}
    FAULT(double_small), FAULT(double_large), FAULT(double_remote), FAULT(double_mixed),
    FAULT(inside_small), FAULT(inside_large), FAULT(foreign), FAULT(foreign_mapping),
    FAULT(large_behind), FAULT(large_before), FAULT(large_slack), FAULT(large_late),
    FAULT(small_behind), FAULT(small_fill), FAULT(small_realloc), FAULT(late_write), FAULT(late_write_reused),
    FAULT(kept_behind), FAULT(late_write_exit), FAULT(large_front),
    FAULT(delete_other_size), FAULT(delete_other_size_large), FAULT(delete_other_size_aligned), FAULT(free_other_size),
    FAULT(delete_an_array), FAULT(free_an_array), FAULT(delete_one_as_array), FAULT(delete_one_as_array_aligned),
    FAULT(late_read), FAULT(late_read_thread), FAULT(late_store), FAULT(sample_behind),
    FAULT(sample_before), FAULT(own_handler), FAULT(own_fault), FAULT(wild), FAULT(contents),
};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof FAULTS / sizeof *FAULTS; i++) {
        if (strcmp(argv[1], FAULTS[i].name) == 0) {
            // Not the first block of the heap, so that there is something before it.
            sink = *(char *)calloc(1, 40);
            FAULTS[i].run();
            puts("survived");
            return 0;
        }
    }
    fputs("faults: name one\n", stderr);
    return 2;
}
