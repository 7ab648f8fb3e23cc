// A drawing has layers as large as the canvas, each a block of its own; nearly all are drawn on in one corner.
// Mended: a layer has tiles of 64 x 64, made when they are drawn on.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>
#include "seeded.h"
#include "skinflint.h"

enum { SIDE = 512, TILE = 64, ACROSS = SIDE / TILE };

class Layer {
public:
    Layer()
    {
#ifndef MENDED
        pixels_.reset(new unsigned[SIDE * SIDE]);
#endif
    }
    void draw(int x, int y, int width, int height, unsigned ink)
    {
        for (int row = y; row < y + height; row++)
            for (int column = x; column < x + width; column++)
                at(column, row) = ink;
    }
    unsigned &at(int x, int y)
    {
#ifdef MENDED
        auto &tile = tiles_[y / TILE * ACROSS + x / TILE];
        if (!tile)
            tile.reset(new unsigned[TILE * TILE]);
        return tile[y % TILE * TILE + x % TILE];
#else
        return pixels_[y * SIDE + x];
#endif
    }

private:
    std::unique_ptr<unsigned[]> pixels_;
    std::unique_ptr<unsigned[]> tiles_[ACROSS * ACROSS];
};

int main()
{
    std::vector<std::unique_ptr<Layer>> layers;
    unsigned long sum = 0;
    for (int i = 0; i < 60; i++) {
        layers.push_back(std::make_unique<Layer>());
        for (int turn = 0; turn < 20; turn++)
            layers.back()->draw(seeded(32), seeded(32), 64, 64, i * 1000 + turn);
    }
    skinflint_mark("drawn");
    for (auto &layer : layers)
        sum += layer->at(40, 40);
    std::printf("%lu\n", sum);
}
