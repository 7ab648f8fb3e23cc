/*
 * jit.c: code made at run time, in memory without unwind information, that calls malloc.
 *
 * Two stubs in one page mapped readable, writable and executable, each called 50 times through
 * `through`, which holds a local array so that the frame above is not trivial:
 *
 *   framed    push rbp; mov rbp, rsp; mov rax, malloc; call rax; pop rbp; ret      50 x 601, kept
 *   frameless sub rsp, 8; mov rax, malloc; call rax; add rsp, 8; ret               50 x 607, kept
 *
 * Then the page is unmapped, mapped again and written with the stubs swapped: 50 x 613 framed at the
 * address of frameless, kept. 150 live at the end. Whoever unwinds must stop at the stub or step over
 * it; frames of main may be missing but must not be wrong.
 */
#include "check.h"

#include <sys/mman.h>

typedef void *stub_fn(size_t);

static const unsigned char framed_head[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xb8};
static const unsigned char framed_tail[] = {0xff, 0xd0, 0x5d, 0xc3};
static const unsigned char plain_head[] = {0x48, 0x83, 0xec, 0x08, 0x48, 0xb8};
static const unsigned char plain_tail[] = {0xff, 0xd0, 0x48, 0x83, 0xc4, 0x08, 0xc3};

static unsigned char *put(unsigned char *at, const void *bytes, size_t length)
{
    memcpy(at, bytes, length);
    return at + length;
}

static stub_fn *make(unsigned char *at, int framed)
{
    void *(*target)(size_t) = malloc;
    unsigned char *start = at;
    at = put(at, framed ? framed_head : plain_head, 6);
    at = put(at, &target, 8);
    if (framed)
        put(at, framed_tail, sizeof framed_tail);
    else
        put(at, plain_tail, sizeof plain_tail);
    stub_fn *stub;
    memcpy(&stub, &start, sizeof stub);
    return stub;
}

NOINLINE static void through(stub_fn *stub, size_t size)
{
    volatile char array[200];
    array[0] = 1;
    void *block = stub(size);
    CHECK(block != NULL);
    memset(block, array[0], size);
}

int main(void)
{
    const int everything = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *page = mmap(NULL, 4096, everything, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    stub_fn *framed = make(page, 1), *frameless = make(page + 256, 0);
    for (int i = 0; i < 50; i++) {
        through(framed, 601);
        through(frameless, 607);
    }
    CHECK(munmap(page, 4096) == 0);
    CHECK(mmap(page, 4096, everything, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page);
    make(page, 0);
    framed = make(page + 256, 1);
    for (int i = 0; i < 50; i++)
        through(framed, 613);
    say("jit: 150 blocks\n");
    return 0;
}
