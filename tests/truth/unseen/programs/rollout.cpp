// A control: a configuration is read anew every so often. The old one goes when the last who reads it lets go of its pointer, so
// for a moment there are two.
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <vector>
#include "dice.h"

struct Rule { unsigned from, to; std::shared_ptr<const std::string> action; };

class Rules {
public:
    explicit Rules(unsigned version) : rules(8000)
    {
        std::vector<std::shared_ptr<const std::string>> actions(400);
        for (auto &action : actions)
            action = std::make_shared<const std::string>(1000 + roll(7), 'a' + version % 26);
        for (Rule &r : rules)
            r = {roll(1000), roll(1000), actions[roll(400)]};
    }
    unsigned match(unsigned value) const
    {
        const Rule &r = rules[value % rules.size()];
        return r.from < r.to ? r.action->size() : (*r.action)[0];
    }

private:
    std::vector<Rule> rules;
};

int main()
{
    unsigned long sum = 0;
    std::vector<unsigned> traffic(2 << 20);
    for (unsigned &value : traffic)
        value = roll(1 << 20);
    std::deque<std::shared_ptr<const Rules>> readers;
    for (unsigned version = 0; version < 60; version++) {
        auto rules = std::make_shared<const Rules>(version);
        readers.push_back(rules);
        if (readers.size() > 2)
            readers.pop_front();
        for (unsigned i = 0; i < 30000; i++)
            sum += readers[i % readers.size()]->match(traffic[version * 30000 + i]);
    }
    std::printf("%lu\n", sum);
}
