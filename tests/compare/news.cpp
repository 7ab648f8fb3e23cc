// Asks through every kind of operator new, 4,000 times each, and through malloc, calloc and realloc: 44,000 calls,
// whoever serves them. The C++ library's operators ask malloc; an allocator's own do not.
#include <cstdlib>
#include <new>

struct alignas(64) Wide {
    char bytes[128];
};

static void *volatile kept;

static void keep(void *block) { kept = block; }

int main() {
    for (int i = 0; i < 4000; i++) {
        int *one = new int(i);
        keep(one);
        delete one;
        char *many = new char[40];
        keep(many);
        delete[] many;
        int *perhaps = new (std::nothrow) int(i);
        keep(perhaps);
        delete perhaps;
        char *perhaps_many = new (std::nothrow) char[40];
        keep(perhaps_many);
        delete[] perhaps_many;
        Wide *wide = new Wide;
        keep(wide);
        delete wide;
        Wide *wides = new Wide[2];
        keep(wides);
        delete[] wides;
        Wide *perhaps_wide = new (std::nothrow) Wide;
        keep(perhaps_wide);
        delete perhaps_wide;
        Wide *perhaps_wides = new (std::nothrow) Wide[2];
        keep(perhaps_wides);
        delete[] perhaps_wides;
        void *block = malloc(100);
        keep(block);
        block = realloc(block, 5000);
        keep(block);
        free(block);
        void *zeroed = calloc(2, 50);
        keep(zeroed);
        free(zeroed);
    }
    return 0;
}
