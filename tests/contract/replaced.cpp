/*
 * replaced.cpp: a program with an operator new and an operator delete of its own, and no more than these
 * two (and, with -DALIGNED, the aligned two). The standard defines all others by them, so:
 *
 * Each block of every form has the program's header in front, and is counted. Had the preloaded library
 * its own new[] or sized delete, the header would be missing, or be freed as a block.
 */
#include "check.h"

#include <new>

static const size_t HEADER = 64;
static const size_t MAGIC = 0x600dcafe;
static int taken, given;

static void *with_header(size_t size)
{
    if (size > PTRDIFF_MAX - HEADER)
        throw std::bad_alloc();
    size_t *block = static_cast<size_t *>(aligned_alloc(HEADER, HEADER + size));
    if (block == nullptr)
        throw std::bad_alloc();
    block[0] = MAGIC;
    taken++;
    return block + HEADER / sizeof *block;
}

static void without_header(void *block)
{
    if (block == nullptr)
        return;
    size_t *header = static_cast<size_t *>(block) - HEADER / sizeof *header;
    CHECK(header[0] == MAGIC);
    header[0] = 0;
    given++;
    free(header);
}

void *operator new(size_t size) { return with_header(size); }
void operator delete(void *block) noexcept { without_header(block); }
#ifdef ALIGNED
void *operator new(size_t size, std::align_val_t) { return with_header(size); }
void operator delete(void *block, std::align_val_t) noexcept { without_header(block); }
#endif

static void *seen(void *block)
{
    OPAQUE(block);
    CHECK(block != nullptr);
    return block;
}

int main()
{
    const std::align_val_t line{64};
    ::operator delete(seen(::operator new(10)));
    ::operator delete(seen(::operator new(10)), (size_t)10);
    ::operator delete(seen(::operator new(10, std::nothrow)), std::nothrow);
    ::operator delete[](seen(::operator new[](10)));
    ::operator delete[](seen(::operator new[](10)), (size_t)10);
    ::operator delete[](seen(::operator new[](10, std::nothrow)), std::nothrow);
    say("plain: %d taken, %d given\n", taken, given);
    ::operator delete(seen(::operator new(10, line)), line);
    ::operator delete(seen(::operator new(10, line)), (size_t)10, line);
    ::operator delete(seen(::operator new(10, line, std::nothrow)), line, std::nothrow);
    ::operator delete[](seen(::operator new[](10, line)), line);
    ::operator delete[](seen(::operator new[](10, line)), (size_t)10, line);
    ::operator delete[](seen(::operator new[](10, line, std::nothrow)), line, std::nothrow);
    say("with alignment: %d taken, %d given\n", taken, given);
    size_t too_much = PTRDIFF_MAX;
    OPAQUE(too_much);
    CHECK(::operator new(too_much, std::nothrow) == nullptr);
    CHECK(::operator new[](too_much, std::nothrow) == nullptr);
    CHECK(::operator new(too_much, line, std::nothrow) == nullptr);
    say("replaced ok\n");
    return 0;
}
