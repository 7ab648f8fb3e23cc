// Results are remembered by request, and no request comes twice: the table only grows.
// Mended: the last 200 are remembered.
#include <cstdio>
#include <deque>
#include <unordered_map>
#include <vector>
#include "seeded.h"
#include "skinflint.h"

class Planner {
public:
    double plan(unsigned long request)
    {
        auto known = memo_.find(request);
        if (known == memo_.end())
            known = memo_.emplace(request, compute(request)).first;
#ifdef MENDED
        order_.push_back(request);
        if (order_.size() > 200) {
            memo_.erase(order_.front());
            order_.pop_front();
        }
#endif
        return known->second.back();
    }

private:
    std::vector<double> compute(unsigned long request)
    {
        std::vector<double> route(150 + seeded(200));
        double way = request % 97;
        for (double &step : route)
            step = way = way * 0.97 + seeded(10);
        return route;
    }
    std::unordered_map<unsigned long, std::vector<double>> memo_;
    std::deque<unsigned long> order_;
};

int main()
{
    Planner planner;
    double sum = 0;
    for (unsigned long i = 0; i < 12000; i++)
        sum += planner.plan(i * 2654435761ul + seeded(1000));
    skinflint_mark("planned");
    std::printf("%.3f\n", sum);
}
