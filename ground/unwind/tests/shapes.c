/* Frames of every shape that a compiler makes, for tests/walk.rs: built with -O2 and without frame
 * pointers as a shared object, so that calls between exported functions go through the PLT.
 * `probe` captures the stack. Every call is followed by a use, so that none is a tail call. */
#include <alloca.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

typedef int (*probe_fn)(void);
probe_fn probe;

int leaf(int x) { return probe() + x; }

int small(int depth, unsigned seed);
int saver(int depth, unsigned seed);
int variable(int depth, unsigned seed);
int aligned(int depth, unsigned seed);

static unsigned next(unsigned seed) { return seed * 1664525u + 1013904223u; }

/* The call tree: which function, how many children and where it probes follow from the seed. */
int tree(int depth, unsigned seed) {
    if (depth <= 0) return probe() + 1;
    int sum = 0;
    unsigned children = 1 + (seed >> 28) % 3;
    for (unsigned i = 0; i < children; i++) {
        seed = next(seed);
        switch ((seed >> 24) % 5) {
        case 0: sum += small(depth - 1, seed); break;
        case 1: sum += saver(depth - 1, seed); break;
        case 2: sum += variable(depth - 1, seed); break;
        case 3: sum += aligned(depth - 1, seed); break;
        default: sum += leaf(depth); sum += tree(depth - 2, seed); break;
        }
    }
    return sum;
}

int small(int depth, unsigned seed) { return tree(depth, seed) + 3; }

int saver(int depth, unsigned seed) {
    volatile int local[40];
    int a = depth * 3, b = depth * 5, c = seed & 7, d = seed & 31, e = seed & 63;
    local[depth & 31] = a;
    int r = tree(depth, seed) + leaf(a);
    return r + a * b + c * d * e + local[depth & 31];
}

int variable(int depth, unsigned seed) {
    volatile char *p = alloca(8 + seed % 333);
    p[0] = 1;
    int r = tree(depth, seed);
    return r + p[0];
}

int aligned(int depth, unsigned seed) {
    volatile int v[16] __attribute__((aligned(64)));
    v[seed & 15] = depth;
    int r = tree(depth, seed);
    return r + v[seed & 15] + leaf(r);
}

/* More locals than a packed rule can say. */
int huge(int depth, unsigned seed) {
    volatile char room[200000];
    room[seed % sizeof room] = 1;
    int r = tree(depth, seed);
    return r + room[seed % sizeof room];
}

int recurse(int depth) {
    if (depth == 0) return probe() + 1;
    int r = recurse(depth - 1);
    if (depth % 1024 == 0) r += probe();
    return r + 1;
}

int recurse_aligned(int depth) {
    volatile int v[16] __attribute__((aligned(64)));
    v[depth & 15] = depth;
    int r = depth == 0 ? probe() : recurse_aligned(depth - 1);
    if (depth % 64 == 0) r += probe();
    return r + v[depth & 15];
}

static int compare(const void *a, const void *b) {
    probe();
    return *(const int *)a - *(const int *)b;
}

int sorted(int count) {
    int v[64];
    for (int i = 0; i < count && i < 64; i++) v[i] = (i * 37) % 64;
    qsort(v, count, sizeof v[0], compare);
    return v[0];
}

static jmp_buf back;
static int jump(int depth) {
    if (depth == 0) { probe(); longjmp(back, 1); }
    return jump(depth - 1) + probe();
}
int jumped(int depth) {
    int r = probe();
    if (setjmp(back) == 0) r += jump(depth);
    return r + probe() + tree(4, depth);
}

/* What single-stepping walks over: prologues, epilogues, lazily bound PLT entries. */
int stepped(char *text) {
    volatile int v[8] __attribute__((aligned(32)));
    v[0] = (int)strlen(text) + abs(text[0]) + small(0, 3) + variable(0, 9) + saver(0, 5);
    return v[0] + aligned(0, 7) + atoi(text);
}
