// Planted leaks and cycles, and controls, in C and C++: `planted NAME` runs one. What must be called unreached was
// acquired below a function planted_…; what must not, below kept_…. Each case has 40 blocks or more, and what it keeps
// lives at the end. Afterwards the stack is overwritten, as a program that goes on would. `planted NAME mark` marks.
#include "skinflint.h"
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

#define APART __attribute__((noinline, noclone))

struct Node {
    Node *next;
    Node *prev;
    char data[40];
};

APART static void *planted_alloc(size_t n) { return memset(malloc(n), 0, n); }
APART static void *kept_alloc(size_t n) { return memset(malloc(n), 0, n); }

// Overwrites registers and stack.
APART static int scrub() {
    volatile char room[16384];
    for (size_t i = 0; i < sizeof room; i++) room[i] = 0;
    asm volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%edx, %%edx; xor %%esi, %%esi; xor %%edi, %%edi; xor %%r8d, %%r8d;"
                 "xor %%r9d, %%r9d; xor %%r10d, %%r10d; xor %%r11d, %%r11d; xor %%ebx, %%ebx; xor %%r12d, %%r12d;"
                 "xor %%r13d, %%r13d; xor %%r14d, %%r14d; xor %%r15d, %%r15d" ::
                     : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15");
    return room[17];
}

static const int N = 40;
static void *volatile g_slot;
// Not static: what nobody reads would not be written.
Node *g_list;
void *g_interior[N];
uintptr_t g_tagged[N];
uintptr_t g_high[N];

// ---- leaks

APART static void leak_plain() { for (int i = 0; i < N; i++) planted_alloc(48 + i); }
APART static void leak_overwritten() { for (int i = 0; i < N; i++) g_slot = planted_alloc(64); g_slot = nullptr; }
APART static void leak_list() {
    Node *head = nullptr;
    for (int i = 0; i < N; i++) { Node *n = (Node *)planted_alloc(sizeof(Node)); n->next = head; head = n; }
}
APART static void leak_tail() { // the head stays, the rest is cut off
    for (int i = 0; i < N; i++) {
        Node *n = (Node *)(i ? planted_alloc(sizeof(Node)) : kept_alloc(sizeof(Node)));
        if (!i) g_list = n; else { n->next = g_list->next; g_list->next = n; }
    }
    g_list->next = nullptr;
}
APART static void leak_large() { for (int i = 0; i < N; i++) planted_alloc(300 * 1024 + i * 4096); }
APART static void leak_small() { for (int i = 0; i < 4 * N; i++) planted_alloc(1 + i % 16); }
APART static void planted_realloc() { for (int i = 0; i < N; i++) { void *p = planted_alloc(32); p = realloc(p, 1000); } }
APART static void leak_realloc() { planted_realloc(); }
APART static void planted_calloc() { for (int i = 0; i < N; i++) { volatile auto p = calloc(3, 50 + i); (void)p; } }
APART static void leak_calloc() { planted_calloc(); }
APART static void planted_new_arrays() { for (int i = 0; i < N; i++) { volatile auto p = new long[i + 1]; p[0] = 1; } }
APART static void leak_new() { planted_new_arrays(); }
APART static void planted_string() { for (int i = 0; i < N; i++) { auto *s = new std::string(100 + i, 'x'); (*s)[0] = 'y'; } }
APART static void leak_string() { planted_string(); }
APART static void planted_vectors() { for (int i = 0; i < N; i++) { auto *v = new std::vector<std::string>(5, std::string(50, 'a')); (*v)[0][0] = 'b'; } }
APART static void leak_vectors() { planted_vectors(); }
APART static void planted_map() { auto *m = new std::map<int, std::string>; for (int i = 0; i < N; i++) (*m)[i] = std::string(60, 'm'); }
APART static void leak_map() { planted_map(); }
APART static void leak_array_of_pointers() {
    void **all = (void **)planted_alloc(N * sizeof(void *));
    for (int i = 0; i < N; i++) all[i] = planted_alloc(80);
}
APART static void planted_aligned() { for (int i = 0; i < N; i++) { void *p = nullptr; if (!posix_memalign(&p, 64, 200)) memset(p, 0, 200); } }
APART static void leak_aligned() { planted_aligned(); }
static void *leaking(void *) { for (int i = 0; i < N; i++) planted_alloc(96); scrub(); return nullptr; }
APART static void leak_in_thread() { pthread_t t; pthread_create(&t, nullptr, leaking, nullptr); pthread_join(t, nullptr); }
APART static void leak_freed_owner() { // the owner is freed, what it owned is not
    for (int i = 0; i < N; i++) { void **owner = (void **)malloc(64); owner[0] = planted_alloc(72); free(owner); }
}

// ---- cycles

APART static void planted_ring() {
    Node *first = nullptr, *last = nullptr;
    for (int i = 0; i < N; i++) {
        Node *n = (Node *)planted_alloc(sizeof(Node));
        if (!first) first = n; else { last->next = n; n->prev = last; }
        last = n;
    }
    last->next = first; first->prev = last;
}
APART static void cycle_ring() { planted_ring(); }
struct Shared { std::shared_ptr<Shared> other; char data[32]; };
APART static void planted_shared() {
    for (int i = 0; i < N; i++) { auto a = std::make_shared<Shared>(); auto b = std::make_shared<Shared>(); a->other = b; b->other = a; }
}
APART static void cycle_shared() { planted_shared(); }
struct Parent { std::vector<std::shared_ptr<struct Child>> children; };
struct Child { std::shared_ptr<Parent> parent; std::string name; };
APART static void planted_family() {
    for (int i = 0; i < N; i++) {
        auto p = std::make_shared<Parent>();
        for (int k = 0; k < 3; k++) { auto c = std::make_shared<Child>(); c->parent = p; c->name = std::string(40, 'n'); p->children.push_back(c); }
    }
}
APART static void cycle_family() { planted_family(); }
struct Hooked : std::enable_shared_from_this<Hooked> { std::function<void()> hook; char data[48]; };
APART static void planted_closure() {
    for (int i = 0; i < N; i++) { auto h = std::make_shared<Hooked>(); h->hook = [h, i] { h->data[0] = (char)i; }; }
}
APART static void cycle_closure() { planted_closure(); }

// ---- controls

APART static void keep_list() { for (int i = 0; i < N; i++) { Node *n = (Node *)kept_alloc(sizeof(Node)); n->next = g_list; g_list = n; } }
APART static void keep_ring() {
    Node *head = (Node *)kept_alloc(sizeof(Node)); head->next = head->prev = head;
    for (int i = 0; i < N; i++) { Node *n = (Node *)kept_alloc(sizeof(Node)); n->next = head->next; n->prev = head; head->next->prev = n; head->next = n; }
    g_list = head;
}
APART static void keep_interior() { for (int i = 0; i < N; i++) g_interior[i] = (char *)kept_alloc(128) + 24 + i; }
APART static void keep_tagged() { for (int i = 0; i < N; i++) g_tagged[i] = (uintptr_t)kept_alloc(64) | (i % 8); }
APART static void keep_high() { for (int i = 0; i < N; i++) g_high[i] = (uintptr_t)kept_alloc(64) | (uintptr_t)(0x1000 + i) << 48; }
thread_local void *t_slots[N];
APART static void keep_tls() { for (int i = 0; i < N; i++) t_slots[i] = kept_alloc(72); }
static pthread_barrier_t g_barrier;
static void *holding(void *) {
    void *volatile own[N];
    for (int i = 0; i < N; i++) own[i] = kept_alloc(88);
    pthread_barrier_wait(&g_barrier);
    for (;;) { pause(); if (own[0] == nullptr) break; }
    return (void *)own[1];
}
static void start_holder(void *(*body)(void *)) {
    pthread_t t; pthread_barrier_init(&g_barrier, nullptr, 2); pthread_create(&t, nullptr, body, nullptr); pthread_barrier_wait(&g_barrier);
}
APART static void keep_stack() { start_holder(holding); }
static void *holding_tls(void *) { for (int i = 0; i < N; i++) t_slots[i] = kept_alloc(56); pthread_barrier_wait(&g_barrier); for (;;) pause(); }
APART static void keep_thread_tls() { start_holder(holding_tls); }
static pthread_key_t g_key;
static void *holding_key(void *) { void **all = (void **)kept_alloc(N * 8); for (int i = 0; i < N; i++) all[i] = kept_alloc(56); pthread_setspecific(g_key, all); pthread_barrier_wait(&g_barrier); for (;;) pause(); }
APART static void keep_specific() { pthread_key_create(&g_key, nullptr); start_holder(holding_key); }
APART static void keep_mapping() {
    void **page = (void **)mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < N; i++) page[i * 7] = kept_alloc(104);
}
APART static void keep_shared_mapping() {
    void **page = (void **)mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < N; i++) page[i * 7] = kept_alloc(104);
}
static std::map<int, std::string> g_map;
APART static void kept_map() { for (int i = 0; i < N; i++) g_map[i] = std::string(70, 'k'); }
APART static void keep_map() { kept_map(); }
static std::unordered_map<std::string, std::vector<int>> g_hash;
APART static void kept_hash() { for (int i = 0; i < N; i++) g_hash[std::string(40, 'a' + i % 26) + std::to_string(i)] = std::vector<int>(30, i); }
APART static void keep_hash() { kept_hash(); }
APART static void kept_static_local() { static std::list<std::string> all; for (int i = 0; i < N; i++) all.push_back(std::string(50, 's')); }
APART static void keep_static_local() { kept_static_local(); }
static std::vector<std::shared_ptr<Shared>> g_shared;
APART static void kept_shared() { for (int i = 0; i < N; i++) { auto a = std::make_shared<Shared>(); auto b = std::make_shared<Shared>(); a->other = b; b->other = a; g_shared.push_back(a); } }
APART static void keep_shared_cycle() { kept_shared(); }
struct Base { virtual ~Base() = default; long x[3]; };
struct Second { virtual ~Second() = default; long y[3]; };
struct Both : Base, Second { char data[32]; };
static std::vector<Second *> g_second;
APART static void kept_bases() { for (int i = 0; i < N; i++) g_second.push_back(new Both); }
APART static void keep_second_base() { kept_bases(); }
APART static void keep_large() { for (int i = 0; i < N; i++) g_interior[i] = kept_alloc(300 * 1024 + i * 4096); }
APART static void keep_atexit_main() { // pointers on main's own stack while it exits from inside
    void *volatile own[N];
    for (int i = 0; i < N; i++) own[i] = kept_alloc(120);
    scrub();
    exit(own[0] == nullptr);
}
APART static void kept_realloc() { for (int i = 0; i < N; i++) { void *p = kept_alloc(16); for (int k = 1; k < 6; k++) p = realloc(p, 16u << k); g_interior[i] = p; } }
APART static void keep_realloc() { kept_realloc(); }
static void *returning(void *) { void **all = (void **)kept_alloc(N * 8); for (int i = 0; i < N; i++) all[i] = kept_alloc(48); pthread_barrier_wait(&g_barrier); return all; }
APART static void keep_result() { start_holder(returning); usleep(50000); } // ended, not joined: its result is the C library's

APART static void keep_signal_stack() { // the kernel alone knows where the stack for handlers is
    stack_t stack = {};
    stack.ss_size = 65536;
    stack.ss_sp = kept_alloc(stack.ss_size);
    for (int i = 0; i < N; i++) ((void **)stack.ss_sp)[i] = kept_alloc(96);
    sigaltstack(&stack, nullptr);
    memset((void *)&stack, 0, sizeof stack);
}

struct Case { const char *name; void (*run)(); };
static const Case CASES[] = {
#define CASE(name) {#name, name}
    CASE(leak_plain), CASE(leak_overwritten), CASE(leak_list), CASE(leak_tail), CASE(leak_large), CASE(leak_small),
    CASE(leak_realloc), CASE(leak_calloc), CASE(leak_new), CASE(leak_string), CASE(leak_vectors), CASE(leak_map),
    CASE(leak_array_of_pointers), CASE(leak_aligned), CASE(leak_in_thread), CASE(leak_freed_owner), CASE(cycle_ring),
    CASE(cycle_shared), CASE(cycle_family), CASE(cycle_closure),
    CASE(keep_list), CASE(keep_ring), CASE(keep_interior), CASE(keep_tagged), CASE(keep_high), CASE(keep_tls),
    CASE(keep_stack), CASE(keep_thread_tls), CASE(keep_specific), CASE(keep_mapping), CASE(keep_shared_mapping),
    CASE(keep_map), CASE(keep_hash), CASE(keep_static_local), CASE(keep_shared_cycle), CASE(keep_second_base),
    CASE(keep_large), CASE(keep_atexit_main), CASE(keep_realloc), CASE(keep_result), CASE(keep_signal_stack),
};

int main(int argc, char **argv) {
    for (const Case &one : CASES) {
        if (argc < 2) puts(one.name);
        else if (!strcmp(argv[1], one.name)) {
            one.run();
            scrub();
            if (argc > 2) skinflint_mark("planted");
            return 0;
        }
    }
    return argc < 2 ? 0 : 2;
}
