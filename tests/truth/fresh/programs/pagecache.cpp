// A database's page cache: a page of 8 KiB with what the cache knows of it behind it, in one object.
// Mended: pages and what is known of them are apart.
#include <cstdio>
#include <cstring>
#include <list>
#include <unordered_map>
#include "seeded.h"

struct Known { unsigned number; bool dirty; unsigned pins; unsigned long used; };
#ifdef MENDED
struct Bytes { unsigned char data[8192]; };
struct Page { Bytes *bytes; Known known; };
#else
struct Page { unsigned char data[8192]; Known known; };
#endif

class Cache {
public:
    unsigned char *fetch(unsigned number)
    {
        auto found = pages_.find(number);
        if (found == pages_.end()) {
            if (pages_.size() == 2500)
                evict();
#ifdef MENDED
            Page *page = new Page{new Bytes, {number, false, 0, 0}};
            std::memset(page->bytes->data, number, 8192);
#else
            Page *page = new Page;
            page->known = {number, false, 0, 0};
            std::memset(page->data, number, 8192);
#endif
            found = pages_.emplace(number, page).first;
            order_.push_back(number);
        }
        found->second->known.used++;
#ifdef MENDED
        return found->second->bytes->data;
#else
        return found->second->data;
#endif
    }

private:
    void evict()
    {
        auto gone = pages_.find(order_.front());
        order_.pop_front();
#ifdef MENDED
        delete gone->second->bytes;
#endif
        delete gone->second;
        pages_.erase(gone);
    }
    std::unordered_map<unsigned, Page *> pages_;
    std::list<unsigned> order_;
};

int main()
{
    Cache cache;
    unsigned long sum = 0;
    for (int i = 0; i < 100000; i++)
        sum += cache.fetch(seeded(100) < 95 ? seeded(2000) : seeded(6000))[seeded(8192)];
    std::printf("%lu\n", sum);
}
