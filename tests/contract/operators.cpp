/*
 * operators.cpp: every operator new and delete, and what happens when memory runs out.
 *
 *   throwing   new, new[], aligned: handler called until it gives up, then bad_alloc, also through frames
 *              that have destructors to run; a handler that makes room lets new succeed
 *   nothrow    null, after the handler; a handler that throws bad_alloc ends in null
 *   aligned    each power of two to 64 KiB; an alignment that is none: bad_alloc
 *   threads    thread_local objects whose destructors free, after the thread's other ends
 *   exceptions 20,000 thrown and caught in 4 threads
 */
#include "check.h"

#include <atomic>
#include <new>
#include <string>
#include <thread>
#include <vector>

static size_t hide(size_t n)
{
    OPAQUE(n);
    return n;
}

static const size_t too_much = PTRDIFF_MAX;
static int handler_calls;

static void gives_up_at_third()
{
    if (++handler_calls % 3 == 0)
        std::set_new_handler(nullptr);
}

static void throws() { throw std::bad_alloc(); }

struct Counts {
    int &count;
    ~Counts() { count++; }
};

template <typename Call> static int caught(Call call)
{
    int unwound = 0, bad = 0;
    std::set_new_handler(gives_up_at_third);
    try {
        Counts counts{unwound};
        void *block = call();
        OPAQUE(block);
    } catch (const std::bad_alloc &) {
        bad = 1;
    }
    return bad * 10 + unwound;
}

static void throwing()
{
    const std::align_val_t line{64}, none{24};
    say("new: %d\n", caught([] { return ::operator new(hide(too_much)); }));
    say("new[]: %d\n", caught([] { return ::operator new[](hide(too_much)); }));
    say("new aligned: %d\n", caught([=] { return ::operator new(hide(too_much), line); }));
    say("new[] aligned: %d\n", caught([=] { return ::operator new[](hide(too_much), line); }));
    say("handler calls: %d\n", handler_calls);
    std::set_new_handler(nullptr);
    int bad = 0;
    try {
        void *block = ::operator new(hide(100), none);
        OPAQUE(block);
    } catch (const std::bad_alloc &) {
        bad = 1;
    }
    say("new with alignment 24: %s\n", bad ? "bad_alloc" : "block");
    try {
        std::vector<std::string> strings;
        strings.reserve(hide(too_much / 64));
    } catch (const std::bad_alloc &) {
        say("vector: bad_alloc\n");
    }
}

static void nothrow()
{
    const std::align_val_t line{64};
    handler_calls = 0;
    std::set_new_handler(gives_up_at_third);
    CHECK(::operator new(hide(too_much), std::nothrow) == nullptr && handler_calls == 3);
    std::set_new_handler(throws);
    CHECK(::operator new(hide(too_much), std::nothrow) == nullptr);
    CHECK(::operator new[](hide(too_much), std::nothrow) == nullptr);
    CHECK(::operator new(hide(too_much), line, std::nothrow) == nullptr);
    CHECK(::operator new[](hide(too_much), line, std::nothrow) == nullptr);
    std::set_new_handler(nullptr);
    void *block = ::operator new(hide(100), std::nothrow);
    CHECK(block != nullptr);
    ::operator delete(block, std::nothrow);
    say("nothrow ok\n");
}

static void aligned()
{
    for (size_t power = 1; power <= 65536; power *= 2) {
        const std::align_val_t alignment{power};
        for (size_t size : {size_t(0), size_t(1), size_t(100), size_t(5000), size_t(100000)}) {
            void *blocks[] = {
                ::operator new(size, alignment), ::operator new[](size, alignment),
                ::operator new(size, alignment, std::nothrow), ::operator new[](size, alignment, std::nothrow),
            };
            for (void *block : blocks) {
                CHECK(block != nullptr && (uintptr_t)block % power == 0);
                memset(block, 1, size);
            }
            ::operator delete(blocks[0], size, alignment);
            ::operator delete[](blocks[1], size, alignment);
            ::operator delete(blocks[2], alignment, std::nothrow);
            ::operator delete[](blocks[3], alignment);
        }
    }
    say("aligned ok\n");
}

static void plain()
{
    for (size_t size = 0; size < 3000; size++) {
        char *one = static_cast<char *>(::operator new(size)), *many = static_cast<char *>(::operator new[](size));
        CHECK((uintptr_t)one % 16 == 0 && (uintptr_t)many % 16 == 0);
        memset(one, 1, size);
        memset(many, 2, size);
        if (size % 2) {
            ::operator delete(one, size);
            ::operator delete[](many);
        } else {
            ::operator delete(one);
            ::operator delete[](many, size);
        }
    }
    ::operator delete(nullptr);
    ::operator delete[](nullptr, 5);
    say("plain ok\n");
}

static std::atomic<int> ended;

struct Late {
    std::vector<std::string> texts;
    ~Late()
    {
        texts.emplace_back(200, 'y');
        texts.clear();
        texts.shrink_to_fit();
        ended++;
    }
};

static thread_local Late late;

static int thrown(int depth)
{
    std::string text(50, 'x');
    OPAQUE(depth);
    if (depth == 0)
        throw std::vector<int>(30, 7);
    return thrown(depth - 1) + (int)text.size();
}

static void threads()
{
    std::vector<std::thread> all;
    std::atomic<int> sum{0};
    for (int i = 0; i < 4; i++)
        all.emplace_back([&sum] {
            late.texts.emplace_back(100, 'x');
            for (int round = 0; round < 5000; round++) {
                try {
                    thrown(round % 10);
                } catch (const std::vector<int> &numbers) {
                    sum += numbers[29];
                }
            }
        });
    for (auto &thread : all)
        thread.join();
    say("threads: %d ended, %d\n", ended.load(), sum.load());
}

int main()
{
    plain();
    aligned();
    throwing();
    nothrow();
    threads();
    say("operators ok\n");
    return 0;
}
