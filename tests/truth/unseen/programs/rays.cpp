// Rays through a grid of spheres: for each ray the hits are put into a vector of their own, sorted, and forgotten.
// Mended: one vector is kept for all rays, and cleared.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>
#include "dice.h"

struct Sphere { float x, y, z, radius; unsigned char paint[112]; };
struct Hit { float distance; unsigned sphere; };

class Scene {
public:
    explicit Scene(unsigned count) : spheres(count)
    {
        for (Sphere &s : spheres)
            s = {roll(1000) / 10.f, roll(1000) / 10.f, roll(1000) / 10.f, 1.f + roll(40) / 10.f, {}};
    }

    unsigned trace(unsigned column, unsigned row)
    {
#ifdef MENDED
        std::vector<Hit> &hits = scratch;
        hits.clear();
#else
        std::vector<Hit> hits;
#endif
        hits.reserve(64);
        unsigned first = (column * 131 + row * 31) % (spheres.size() - 60);
        for (unsigned i = first; i < first + 60; i++) {
            float dx = spheres[i].x - column, dy = spheres[i].y - row, square = dx * dx + dy * dy;
            if (square < spheres[i].radius * spheres[i].radius * 60)
                hits.push_back({spheres[i].z - std::sqrt(square), i});
        }
        std::sort(hits.begin(), hits.end(), [](const Hit &a, const Hit &b) { return a.distance < b.distance; });
        return hits.empty() ? 0 : hits.front().sphere + hits.size();
    }

private:
    std::vector<Sphere> spheres;
    std::vector<Hit> scratch;
};

int main()
{
    Scene scene(90000);
    unsigned long sum = 0;
    for (unsigned row = 0; row < 220; row++)
        for (unsigned column = 0; column < 320; column++)
            sum += scene.trace(column, row);
    std::printf("%lu\n", sum);
}
