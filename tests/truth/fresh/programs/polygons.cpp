// A map's polygons are read point by point into vectors, though the file says how many points come.
// Mended: reserve.
#include <cstdio>
#include <vector>
#include "seeded.h"
#include "skinflint.h"

struct Point { double x, y; int source; };
struct Polygon { int id; std::vector<Point> points; };

static void read_polygon(Polygon &polygon, int id)
{
    unsigned count = 33 + seeded(16);
    polygon.id = id;
#ifdef MENDED
    polygon.points.reserve(count);
#endif
    for (unsigned i = 0; i < count; i++)
        polygon.points.push_back({id + i * 0.5, id - i * 0.25, int(i)});
}

int main()
{
    std::vector<Polygon> map(16000);
    for (int i = 0; i < 16000; i++)
        read_polygon(map[i], i);
    skinflint_mark("loaded");
    double area = 0;
    for (int turn = 0; turn < 10; turn++)
        for (const Polygon &p : map)
            for (size_t i = 1; i < p.points.size(); i++)
                area += p.points[i - 1].x * p.points[i].y - p.points[i].x * p.points[i - 1].y;
    std::printf("%.0f\n", area);
}
