// Containers of the standard library, filled and kept: some 12,000 live blocks.
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

struct Shop {
    std::map<std::string, std::vector<int>> prices;
    std::unordered_map<int, std::string> names;
    std::list<std::unique_ptr<long>> orders;
    std::deque<std::shared_ptr<std::string>> notes;
    std::set<std::pair<int, int>> seen;
};

static Shop *shop;

static std::string name(int i) { return "a name that no string holds inline, number " + std::to_string(i); }

static void stock(int i)
{
    shop->prices[name(i)].push_back(i);
    shop->names.emplace(i, name(-i));
}

template <class T> static void note(T &&text) { shop->notes.push_back(std::make_shared<std::string>(std::forward<T>(text))); }

static void order(int i)
{
    shop->orders.push_back(std::make_unique<long>(i));
    note(name(i));
    if (i % 3 == 0)
        shop->seen.insert({i, -i});
}

int main()
{
    shop = new Shop;
    for (int i = 0; i < 1000; i++) {
        stock(i);
        order(i);
    }
    return 0;
}
