// A chat server after its rush hour: of 150,000 connections one in forty goes on, here and there among those that were closed.
// malloc_trim is called. Mended: those that go on are moved into one array.
#include <cstdio>
#include <cstring>
#include <malloc.h>
#include <memory>
#include <unistd.h>
#include <vector>
#include "seeded.h"
#include "skinflint.h"

struct Connection {
    int socket;
    unsigned long received;
    char peer[46], room[90];
};

static std::unique_ptr<Connection> accept_one(int socket)
{
    auto c = std::make_unique<Connection>();
    c->socket = socket;
    std::snprintf(c->peer, sizeof c->peer, "10.%d.%d.%d", socket >> 16, socket >> 8 & 255, socket & 255);
    std::snprintf(c->room, sizeof c->room, "room %u", seeded(500));
    return c;
}

int main()
{
    std::vector<std::unique_ptr<Connection>> open;
    open.reserve(150000);
    unsigned long sum = 0;
    for (int i = 0; i < 150000; i++)
        open.push_back(accept_one(i));
    std::vector<std::unique_ptr<Connection>> left;
    for (auto &c : open)
        if (seeded(40) == 0)
            left.push_back(std::move(c));
        else
            sum += c->peer[3], c.reset();
    std::vector<std::unique_ptr<Connection>>().swap(open);
#ifdef MENDED
    std::vector<Connection> together;
    together.reserve(left.size());
    for (auto &c : left)
        together.push_back(*c);
    std::vector<std::unique_ptr<Connection>>().swap(left);
#endif
    malloc_trim(0);
    // CLOCK: a program that goes on, at rest; nothing is judged by it
    usleep(100000);
    skinflint_mark("idle");
    for (int i = 0; i < 30; i++) {
#ifdef MENDED
        together[seeded(together.size())].received++;
#else
        left[seeded(left.size())]->received++;
#endif
        std::vector<char> message(200 + seeded(100), 'm');
        sum += message[7];
        // CLOCK: a program that goes on, at rest; nothing is judged by it
        usleep(10000);
    }
    std::printf("%lu\n", sum);
}
