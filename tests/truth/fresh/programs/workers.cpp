// Control. A pool of 48 network buffers: each request takes one and gives it back, and in a rush all are in use.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>
#include "seeded.h"

struct Buffer { unsigned used; char bytes[100000]; };

class Pool {
public:
    std::unique_ptr<Buffer> take()
    {
        if (spare_.empty())
            return std::make_unique<Buffer>();
        auto buffer = std::move(spare_.back());
        spare_.pop_back();
        return buffer;
    }
    void give(std::unique_ptr<Buffer> buffer) { spare_.push_back(std::move(buffer)); }

private:
    std::vector<std::unique_ptr<Buffer>> spare_;
};

int main()
{
    Pool pool;
    unsigned long sum = 0;
    for (int rush = 0; rush < 150; rush++) {
        std::vector<std::unique_ptr<Buffer>> busy;
        for (unsigned n = 24 + seeded(25); n--;) {
            busy.push_back(pool.take());
            busy.back()->used = 20000 + seeded(80000);
            std::memset(busy.back()->bytes, rush, busy.back()->used);
        }
        for (auto &buffer : busy) {
            sum += buffer->bytes[buffer->used / 2];
            std::vector<char> head(buffer->bytes, buffer->bytes + 300);
            sum += head[7];
            pool.give(std::move(buffer));
        }
    }
    std::printf("%lu\n", sum);
}
