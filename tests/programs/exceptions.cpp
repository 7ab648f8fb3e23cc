/*
 * exceptions.cpp: C++ exceptions thrown from deep frames, with allocations on the way and in the
 * handlers, in 4 threads at once.
 *
 * Each thread, 200 rounds: recurse to depth 1 + round % 40, each frame holding a vector of 3 ints
 * (12 bytes, freed by unwinding); at the bottom a std::runtime_error is thrown (the exception's own
 * blocks are the C++ library's); the handler takes 163 bytes with malloc, kept in each 20th round;
 * every 4th round is rethrown once through a catch (...) half-way.
 *   4 x 200 x 163, 40 live at the end.
 *   vectors: 4 x sum over rounds of the depth: 5 x (1 + ... + 40) = 4100 each, 16400 x 12 bytes.
 */
#include "check.h"

#include <stdexcept>
#include <thread>
#include <vector>

NOINLINE static int descend(int depth, int rethrow_at)
{
    std::vector<int> held(3, depth);
    int *data = held.data();
    OPAQUE(data);
    if (depth == 0)
        throw std::runtime_error("bottom");
    if (depth == rethrow_at) {
        try {
            return descend(depth - 1, rethrow_at) + held[0];
        } catch (...) {
            throw;
        }
    }
    return descend(depth - 1, rethrow_at) + held[1];
}

NOINLINE static void *in_handler()
{
    void *block = must_malloc(163);
    NO_TAIL_CALL();
    return block;
}

static void work(int *caught)
{
    for (int round = 0; round < 200; round++) {
        int depth = round % 40;
        try {
            descend(depth, round % 4 == 0 ? depth / 2 + 1 : -1);
        } catch (const std::runtime_error &error) {
            CHECK(strcmp(error.what(), "bottom") == 0);
            void *block = in_handler();
            if (round % 20 != 0)
                free(block);
            ++*caught;
        }
    }
}

int main()
{
    int caught[4] = {};
    std::thread threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = std::thread(work, &caught[i]);
    int all = 0;
    for (int i = 0; i < 4; i++) {
        threads[i].join();
        all += caught[i];
    }
    say("exceptions: %d caught\n", all);
    return 0;
}
