// Tiles of 32 by 32 pixels, 3,072 bytes, under shared pointers: make_shared puts its counters in front of the pixels, and the
// whole falls into the next class.
// Mended: a tile and its counters are blocks of their own.
#include <array>
#include <cstdio>
#include <memory>
#include <vector>
#include "dice.h"

struct Tile {
    std::array<unsigned char, 3072> pixels;
    explicit Tile(unsigned seed) { for (unsigned i = 0; i < pixels.size(); i++) pixels[i] = seed + i * i; }
};

class Cache {
public:
    explicit Cache(unsigned tiles) : slots(tiles) {}

    std::shared_ptr<Tile> load_tile(unsigned place, unsigned seed)
    {
#ifdef MENDED
        std::shared_ptr<Tile> tile(new Tile(seed));
#else
        auto tile = std::make_shared<Tile>(seed);
#endif
        slots[place] = tile;
        return tile;
    }

    std::shared_ptr<Tile> at(unsigned place) const { return slots[place]; }

private:
    std::vector<std::shared_ptr<Tile>> slots;
};

int main()
{
    const unsigned tiles = 5000;
    unsigned long sum = 0;
    Cache cache(tiles);
    for (unsigned i = 0; i < tiles; i++)
        sum += cache.load_tile(i, i)->pixels[i % 3072];
    for (int i = 0; i < 300000; i++) {
        unsigned place = roll(tiles);
        if (i % 50 == 0)
            cache.load_tile(place, i);
        sum += cache.at(place)->pixels[roll(3072)];
    }
    skinflint_mark("viewed");
    std::printf("%lu\n", sum);
}
