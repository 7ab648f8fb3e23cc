// Planted: vectors of FROM to TO elements, filled by push_back without reserve, and kept. Mended: reserved.
#include "skinflint.h"
#include <vector>
static std::vector<std::vector<double>> all;

__attribute__((noinline)) static std::vector<double> samples(int many)
{
    std::vector<double> out;
#ifdef MENDED
    out.reserve(many);
#endif
    for (int i = 0; i < many; i++)
        out.push_back(i);
    return out;
}

int main()
{
    unsigned seed = 1;
    all.reserve(COUNT);
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525 + 1013904223;
        all.push_back(samples(FROM + (seed >> 10) % (TO - FROM)));
    }
    skinflint_mark("full");
    return 0;
}
