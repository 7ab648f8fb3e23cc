// Places are read line by line, each of 1,015 letters as the old office wrote them, and an index of numbers is made of the lines.
// The reader lives as long as the index, and so do its lines.
// Mended: lines go when the index is made.
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <vector>
#include "dice.h"

class Reader {
public:
    void read_line()
    {
        std::string line(1015, ' ');
        for (unsigned i = 0; i < line.size(); i += 5)
            line[i] = 'a' + roll(26);
        lines.push_back(std::move(line));
    }
    const std::deque<std::string> &all() const { return lines; }
    void done()
    {
#ifdef MENDED
        std::deque<std::string>().swap(lines);
#endif
    }

private:
    std::deque<std::string> lines;
};

struct Place { unsigned name, north, east, height; };

class Gazetteer {
public:
    void load(unsigned count)
    {
        for (unsigned i = 0; i < count; i++)
            reader->read_line();
        places.reserve(count);
        for (const std::string &line : reader->all()) {
            unsigned name = 0;
            for (char c : line)
                name = name * 131 + c;
            places.push_back({name, name % 180, name % 360, name % 8848});
        }
        reader->done();
    }
    unsigned nearest(unsigned name) const { return places[name % places.size()].height; }

private:
    std::shared_ptr<Reader> reader = std::make_shared<Reader>();
    std::vector<Place> places;
};

int main()
{
    Gazetteer gazetteer;
    unsigned long sum = 0;
    skinflint_mark("load begin");
    gazetteer.load(9000);
    skinflint_mark("load end");
    for (int i = 0; i < 10000000; i++)
        sum += gazetteer.nearest(i * 2654435761u);
    skinflint_mark("serving");
    std::printf("%lu\n", sum);
}
