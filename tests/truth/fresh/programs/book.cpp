// Control. An order book: each trading day opens orders and closes all of them before its end; what was traded is kept for
// thirty days.
#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <vector>
#include "seeded.h"
#include "skinflint.h"

struct Order { std::string account; unsigned amount; };

static std::vector<unsigned> day(unsigned long &sum)
{
    std::multimap<unsigned, Order> orders;
    std::vector<unsigned> traded;
    for (int i = 0; i < 20000; i++) {
        orders.emplace(1000 + seeded(200), Order{"account number " + std::to_string(seeded(5000)), seeded(90)});
        if (i % 3 == 2) {
            traded.push_back(orders.begin()->first);
            sum += orders.begin()->second.amount;
            orders.erase(orders.begin());
        }
    }
    traded.shrink_to_fit();
    return traded;
}

int main()
{
    char name[48];
    unsigned long sum = 0;
    std::deque<std::vector<unsigned>> history;
    for (int d = 1; d <= 40; d++) {
        std::snprintf(name, sizeof name, "day %d begin", d);
        skinflint_mark(name);
        history.push_back(day(sum));
        if (history.size() > 30)
            history.pop_front();
        std::snprintf(name, sizeof name, "day %d end", d);
        skinflint_mark(name);
    }
    std::printf("%lu\n", sum);
}
