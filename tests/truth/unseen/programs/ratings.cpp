// A game server asks for the rating of each guest, and guests have none: operator[] makes an entry for whoever is asked for.
// Mended: find, which makes nothing.
#include <cstdio>
#include <map>
#include <string>
#include <vector>
#include "dice.h"

struct Rating { double value = 1500, doubt = 350; unsigned games = 0; unsigned recent[10] = {}; };

class Ratings {
public:
    void play(unsigned player, int result)
    {
        Rating &r = table[player];
        r.value += result * 8;
        r.recent[r.games++ % 10] = result;
    }

    double rating_of(unsigned player)
    {
#ifdef MENDED
        auto found = table.find(player);
        return found == table.end() ? Rating().value : found->second.value;
#else
        return table[player].value;
#endif
    }

private:
    std::map<unsigned, Rating> table;
};

int main()
{
    Ratings ratings;
    double sum = 0;
    unsigned guest = 1000000;
    for (int i = 0; i < 30000; i++)
        ratings.play(i, i % 3 - 1);
    for (int hour = 1; hour <= 12; hour++) {
        for (int match = 0; match < 9000; match++) {
            unsigned player = roll(30000);
            double gap = ratings.rating_of(player) - ratings.rating_of(guest++);
            ratings.play(player, gap > 0 ? -1 : 1);
            sum += gap;
        }
        skinflint_mark(("hour " + std::to_string(hour)).c_str());
    }
    std::printf("%.1f\n", sum);
}
