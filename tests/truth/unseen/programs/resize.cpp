// Pictures are made smaller through a pool of buffers that is sorted by width and height. Hardly two pictures have the same, so
// what is given to the pool waits until it is the oldest, and nobody takes it.
// Mended: no pool.
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include "dice.h"

using Pixels = std::unique_ptr<unsigned char[]>;
using Shape = std::pair<unsigned, unsigned>;

template <class Key> class Pool {
public:
    Pixels take(const Key &key, size_t bytes)
    {
        auto found = idle.find(key);
        if (found != idle.end()) {
            Pixels pixels = std::move(found->second);
            idle.erase(found);
            return pixels;
        }
        return Pixels(new unsigned char[bytes]);
    }

    void give(const Key &key, Pixels pixels)
    {
#ifndef MENDED
        idle.insert_or_assign(key, std::move(pixels));
        oldest.push_back(key);
        if (oldest.size() > 300) {
            idle.erase(oldest.front());
            oldest.pop_front();
        }
#endif
    }

private:
    std::map<Key, Pixels> idle;
    std::deque<Key> oldest;
};

static unsigned long shrink(Pool<Shape> &pool, unsigned width, unsigned height)
{
    Shape shape(width, height);
    Pixels pixels = pool.take(shape, width * height);
    std::memset(pixels.get(), width ^ height, width * height);
    unsigned long sum = 0;
    for (unsigned i = 0; i < width * height; i += 7)
        sum += pixels[i];
    pool.give(shape, std::move(pixels));
    return sum;
}

int main()
{
    Pool<Shape> pool;
    unsigned long sum = 0;
    auto album = std::make_unique<unsigned char[]>(6 << 20);
    std::memset(album.get(), 1, 6 << 20);
    for (int i = 0; i < 4000; i++)
        sum += shrink(pool, 120 + roll(160), 120 + roll(160)) + album[i * 1500];
    skinflint_mark("shown");
    std::printf("%lu\n", sum);
}
