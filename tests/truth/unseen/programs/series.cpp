// Measurements of many sensors come in turn. Each vector is told to make room for one more before each point, which takes from
// it the right to grow by doubling.
// Mended: push_back alone.
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>
#include "dice.h"

struct Point { long when; double value; };

template <class Value> class Series {
public:
    void add_point(const Value &value)
    {
#ifndef MENDED
        points.reserve(points.size() + 1);
#endif
        points.push_back(value);
    }
    double mean() const
    {
        double sum = 0;
        for (const Value &p : points)
            sum += p.value;
        return sum / points.size();
    }

private:
    std::vector<Value> points;
};

int main()
{
    const int sensors = 500, rounds = 512;
    std::unordered_map<int, Series<Point>> all;
    all.reserve(sensors);
    for (int round = 0; round < rounds; round++)
        for (int sensor = 0; sensor < sensors; sensor++)
            all[sensor * 17].add_point({round, roll(1000) / 10.0});
    skinflint_mark("measured");
    double sum = 0;
    for (int sensor = 0; sensor < sensors; sensor++)
        sum += all[sensor * 17].mean();
    std::printf("%.4f\n", sum);
}
