/*
 * operators.cpp: every operator new and delete. Each takes one block and frees it:
 *
 *   new(11)              new[](12)              nothrow new(13)             nothrow new[](14)
 *   new(64 x 3, align 64)  new[](64 x 4, align 64)  nothrow new(64 x 5, align 64)
 *   nothrow new[](64 x 6, align 64)
 *   and deletes: plain, sized, aligned, sized and aligned, nothrow, each with [] too
 * 8 blocks of 11, 12, 13, 14, 192, 256, 320, 384 bytes; none live. Then 1 x new(17), live at the end.
 * Errors: new of PTRDIFF_MAX throws bad_alloc after the new_handler ran (it is called once, then
 * resets itself); nothrow new of it gives null; a constructor that throws gives its block back
 * (1 x 23, freed). Beside those: blocks of the exceptions.
 */
#include "check.h"

#include <new>

static int handler_calls;

static void give_up()
{
    handler_calls++;
    std::set_new_handler(nullptr);
}

struct Throws {
    char room[23];
    Throws()
    {
        char *here = room;
        OPAQUE(here); /* else the compiler sees that nobody needs the block, and takes none */
        throw 42;
    }
};

static size_t hide(size_t n)
{
    OPAQUE(n);
    return n;
}

static void *seen(void *block, size_t alignment)
{
    OPAQUE(block);
    CHECK(block != nullptr && (uintptr_t)block % alignment == 0);
    return block;
}

NOINLINE static void plain()
{
    ::operator delete(seen(::operator new(11), 16));
    ::operator delete[](seen(::operator new[](12), 16), (size_t)12);
    ::operator delete(seen(::operator new(13, std::nothrow), 16), std::nothrow);
    ::operator delete[](seen(::operator new[](14, std::nothrow), 16), std::nothrow);
    say("plain ok\n");
}

NOINLINE static void aligned()
{
    const std::align_val_t line{64};
    ::operator delete(seen(::operator new(192, line), 64), line);
    ::operator delete[](seen(::operator new[](256, line), 64), (size_t)256, line);
    ::operator delete(seen(::operator new(320, line, std::nothrow), 64), line, std::nothrow);
    ::operator delete[](seen(::operator new[](384, line, std::nothrow), 64), line, std::nothrow);
    say("aligned ok\n");
}

NOINLINE static void failing()
{
    const size_t too_much = hide(PTRDIFF_MAX);
    std::set_new_handler(give_up);
    int caught = 0;
    try {
        seen(::operator new(too_much), 16);
    } catch (const std::bad_alloc &) {
        caught++;
    }
    CHECK(caught == 1 && handler_calls == 1);
    try {
        seen(::operator new[](too_much, std::align_val_t{64}), 64);
    } catch (const std::bad_alloc &) {
        caught++;
    }
    CHECK(caught == 2);
    CHECK(::operator new(too_much, std::nothrow) == nullptr);
    CHECK(::operator new[](too_much, std::nothrow) == nullptr);
    try {
        delete new Throws;
    } catch (int number) {
        caught += number == 42;
    }
    CHECK(caught == 3);
    say("failing ok\n");
}

int main()
{
    plain();
    aligned();
    failing();
    seen(::operator new(17), 16);
    say("operators ok\n");
    return 0;
}
