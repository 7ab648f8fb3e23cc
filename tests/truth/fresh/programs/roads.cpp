// Control. A road network is built, searched, and released node by node before the program ends.
#include <cstdio>
#include <queue>
#include <string>
#include <vector>
#include "seeded.h"

struct Node {
    std::string name;
    std::vector<std::pair<Node *, unsigned>> roads;
    unsigned long distance = ~0ul;
};

int main()
{
    enum { NODES = 90000 };
    std::vector<Node *> nodes(NODES);
    for (int i = 0; i < NODES; i++)
        nodes[i] = new Node{"crossing of road " + std::to_string(i)};
    for (Node *node : nodes) {
        unsigned roads = 3 + seeded(2);
        node->roads.reserve(roads);
        while (roads--)
            node->roads.push_back({nodes[seeded(NODES)], 1 + seeded(100)});
    }
    using Step = std::pair<unsigned long, Node *>;
    auto later = [](const Step &a, const Step &b) { return a.first > b.first; };
    std::priority_queue<Step, std::vector<Step>, decltype(later)> open(later);
    open.push({0, nodes[0]});
    while (!open.empty()) {
        auto [distance, node] = open.top();
        open.pop();
        if (distance >= node->distance)
            continue;
        node->distance = distance;
        for (auto [next, length] : node->roads)
            if (distance + length < next->distance)
                open.push({distance + length, next});
    }
    unsigned long sum = 0;
    for (Node *node : nodes) {
        sum += node->distance == ~0ul ? 1 : node->distance;
        delete node;
    }
    std::printf("%lu\n", sum);
}
