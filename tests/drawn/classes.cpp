// Virtual functions, multiple and virtual bases, operators new of classes, constructors that throw.
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

struct Named {
    std::string *name;
    explicit Named(int i) : name(new std::string("somebody by the number of " + std::to_string(i))) {}
    virtual ~Named() = default;
};
struct Counted : virtual Named {
    int *count;
    explicit Counted(int i) : Named(i), count(new int(i)) {}
    virtual void grow(int by) = 0;
};
struct Held : virtual Named {
    std::vector<char> bytes;
    explicit Held(int i) : Named(i), bytes(size_t(std::abs(i) % 60 + 1)) {}
};
struct Both final : Counted, Held {
    explicit Both(int i) : Named(i), Counted(i), Held(i) {}
    void grow(int by) override { bytes.resize(bytes.size() + size_t(by)); }
    static void *operator new(size_t bytes) { return ::operator new(bytes + 16); }
    static void operator delete(void *block) { ::operator delete(block); }
};
struct Fails {
    int *kept = new int(3);
    explicit Fails(int i)
    {
        if (i % 2)
            throw std::runtime_error("half of them do, and leave a block behind each");
    }
};

static std::vector<Counted *> *all;
static std::vector<Fails *> *some;

static void attempt(int i)
{
    try {
        some->push_back(new Fails(i));
    } catch (const std::exception &) {
        all->push_back(new Both(-i));
    }
}

int main()
{
    all = new std::vector<Counted *>;
    some = new std::vector<Fails *>;
    for (int i = 1; i < 600; i++) {
        all->push_back(new Both(i));
        all->back()->grow(100);
        attempt(i);
    }
    return 0;
}
