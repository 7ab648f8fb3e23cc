// The report of a year: bookings are summed up by account in a table of small nodes, which then goes. The few lines of the
// report were made last and lie behind all that is free.
// Mended: malloc_trim after the report.
#include <malloc.h>
#include <cstdio>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include "dice.h"

struct Account { long balance = 0; unsigned bookings = 0; long months[12] = {}; };

static std::vector<std::unique_ptr<std::string>> year()
{
    std::vector<std::unique_ptr<std::string>> lines;
    lines.reserve(40);
    auto accounts = std::make_unique<std::unordered_map<unsigned, Account>>(200000);
    for (int i = 0; i < 400000; i++) {
        Account &a = (*accounts)[roll(150000)];
        a.balance += roll(1000);
        a.months[i % 12] += ++a.bookings;
    }
    for (int i = 0; i < 40; i++)
        lines.push_back(std::make_unique<std::string>(
            "account " + std::to_string(i) + " has in all " + std::to_string((*accounts)[i].balance)));
    return lines;
}

int main()
{
    auto lines = year();
#ifdef MENDED
    malloc_trim(0);
#endif
    skinflint_mark("idle");
    unsigned long sum = 0;
    for (int i = 0; i < 3000000; i++)
        for (char c : *lines[i % lines.size()])
            sum += c;
    std::printf("%lu %s\n", sum, lines[7]->c_str());
}
