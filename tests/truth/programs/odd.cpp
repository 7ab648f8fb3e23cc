// Control: vectors of elements of 17 bytes, by push_back: their sizes are the vector's, not the program's to cut.
#include <vector>
struct __attribute__((packed)) element {
    char what[17];
};
static std::vector<std::vector<element>> all;

__attribute__((noinline)) static void fill(std::vector<element> &to, int many)
{
    for (int i = 0; i < many; i++)
        to.push_back(element{});
}

int main()
{
    all.resize(COUNT);
    for (int i = 0; i < COUNT; i++)
        fill(all[i], EACH);
    return 0;
}
