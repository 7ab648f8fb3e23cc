// Control. A cache of the 1,500 glyphs that were used last, asked often and hit nine times in ten.
#include <cstdio>
#include <list>
#include <unordered_map>
#include <vector>
#include "seeded.h"

struct Glyph { unsigned code; std::vector<unsigned char> bits; };

class Glyphs {
public:
    const Glyph &get(unsigned code)
    {
        auto found = where_.find(code);
        if (found != where_.end()) {
            hits_++;
            order_.splice(order_.begin(), order_, found->second);
            return order_.front();
        }
        if (order_.size() == 1500) {
            where_.erase(order_.back().code);
            order_.pop_back();
        }
        order_.push_front(rasterize(code));
        where_[code] = order_.begin();
        return order_.front();
    }
    unsigned long hits_ = 0;

private:
    Glyph rasterize(unsigned code)
    {
        Glyph glyph{code, std::vector<unsigned char>(4000 + code * 37 % 9000)};
        for (size_t i = 0; i < glyph.bits.size(); i++)
            glyph.bits[i] = code * i >> 4;
        return glyph;
    }
    std::list<Glyph> order_;
    std::unordered_map<unsigned, std::list<Glyph>::iterator> where_;
};

int main()
{
    Glyphs glyphs;
    unsigned long sum = 0;
    for (int i = 0; i < 120000; i++) {
        const Glyph &glyph = glyphs.get(seeded(100) < 90 ? seeded(1300) : seeded(12000));
        sum += glyph.bits[seeded(glyph.bits.size())];
    }
    std::printf("%lu %lu\n", sum, glyphs.hits_);
}
