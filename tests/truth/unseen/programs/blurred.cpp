// A control: pictures are blurred through a pool of buffers, and the pool is worth its while: nearly each buffer that is taken
// was given back a moment before.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>
#include "dice.h"

class Pool {
public:
    using Buffer = std::vector<unsigned char>;

    struct Return {
        Pool *pool;
        void operator()(Buffer *buffer) const { pool->idle.emplace_back(buffer); }
    };
    using Loan = std::unique_ptr<Buffer, Return>;

    Loan take()
    {
        if (idle.empty())
            return Loan(new Buffer(256 * 1024), Return{this});
        Loan loan(idle.back().release(), Return{this});
        idle.pop_back();
        return loan;
    }

private:
    std::vector<std::unique_ptr<Buffer>> idle;
};

static unsigned long blur(Pool &pool, unsigned seed, unsigned depth)
{
    auto buffer = pool.take();
    std::memset(buffer->data(), seed, buffer->size());
    unsigned long sum = (*buffer)[seed * 1000 % buffer->size()];
    return depth ? sum + blur(pool, seed + 1, depth - 1) : sum;
}

int main()
{
    Pool pool;
    unsigned long sum = 0;
    for (int i = 0; i < 120; i++)
        sum += blur(pool, i, 24 + roll(16));
    std::printf("%lu\n", sum);
}
