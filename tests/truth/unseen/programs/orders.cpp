// An exchange's day: most orders are filled within it, one in forty rests over night. Each that rests holds the slab in which it
// lay among those that are gone.
// Mended: in the evening those that rest are copied to one place, and the old ones released.
#include <cstdio>
#include <memory>
#include <vector>
#include "dice.h"

struct Order { unsigned id, price, amount; char owner[180]; };

class Book {
public:
    void submit(unsigned id)
    {
        day.push_back(new Order{id, 100 + roll(50), 1 + roll(9), {}});
    }

    unsigned long evening()
    {
        unsigned long filled = 0;
        for (Order *&o : day) {
            if (o->id % 40) {
                filled += o->amount * o->price;
                delete o;
                o = nullptr;
            }
        }
#ifdef MENDED
        night.reserve(day.size() / 40 + 1);
        for (Order *&o : day) {
            if (o) {
                night.push_back(*o);
                delete o;
                o = nullptr;
            }
        }
#endif
        return filled;
    }

    unsigned long resting() const
    {
        unsigned long sum = 0;
        for (const Order *o : day)
            sum += o ? o->price : 0;
        for (const Order &o : night)
            sum += o.price;
        return sum;
    }

    std::vector<Order *> day;

private:
    std::vector<Order> night;
};

int main()
{
    const unsigned orders = 120000;
    Book book;
    book.day.reserve(orders);
    for (unsigned i = 0; i < orders; i++)
        book.submit(i);
    unsigned long sum = book.evening();
    skinflint_mark("night");
    for (int i = 0; i < 150; i++)
        sum += book.resting();
    std::printf("%lu\n", sum);
}
