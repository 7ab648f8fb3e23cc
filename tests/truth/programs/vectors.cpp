// Planted: vectors that reserve STEP more each time they are appended to, in turns. Mended: the vector's own growth.
#include <vector>
static std::vector<std::vector<int>> all(BUFFERS);

__attribute__((noinline)) static void append(std::vector<int> &to, int what)
{
#ifndef MENDED
    to.reserve(to.size() + STEP);
#endif
    for (int i = 0; i < STEP; i++)
        to.push_back(what);
}

int main()
{
    for (int step = 0; step < STEPS; step++)
        for (auto &one : all)
            append(one, step);
    return 0;
}
