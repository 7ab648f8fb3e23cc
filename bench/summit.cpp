// summit: programs whose live heap is greatest for a moment only, while resident memory stays.
//
//   summit index    maps and strings that C++ destroys at the end of main, all at once
//   summit layers   vectors of vectors: grown by doubling, moved, destroyed layer by layer
//   summit tree     a tree of nodes, freed in another order than it was made
//   summit rounds   five heaps, each larger than the one before, each freed before the next begins
//   summit crowd    four threads that fill at the same time, and free at the same time once all are full
//
//   live      ▁▂▄▆█▇▅▃▂▁        resident  ▁▂▄▆██████
//
// S1  Nothing rests at the top: from the last block made to the first one freed are microseconds.
// S2  Each prints how much it made, so that it cannot be left out, and nothing else.
#include <pthread.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

struct Entry {
    std::string title;
    std::shared_ptr<Entry> before;
    int rank = 0;
};

std::size_t index() {
    std::unordered_map<std::string, std::vector<int>> places;
    std::map<int, std::unique_ptr<Entry>> entries;
    for (int number = 0; number < 70000; number++) {
        places["the word of number " + std::to_string(number % 6000)].push_back(number);
        auto entry = std::make_unique<Entry>();
        entry->title = "a title too long to be kept within the string, " + std::to_string(number);
        entry->rank = number;
        entries.emplace(number, std::move(entry));
    }
    return places.size() + entries.size();
}

std::size_t layers() {
    std::vector<std::vector<std::vector<std::uint64_t>>> all;
    std::size_t sum = 0;
    for (int layer = 0; layer < 60; layer++) {
        std::vector<std::vector<std::uint64_t>> rows;
        for (int row = 0; row < 400; row++) {
            std::vector<std::uint64_t> cells;
            for (std::uint64_t cell = 0; cell < 200; cell++) cells.push_back(cell * row);
            sum += cells.size();
            rows.push_back(std::move(cells));
        }
        all.push_back(std::move(rows));
    }
    while (!all.empty()) all.pop_back();
    return sum;
}

struct Node {
    Node *left = nullptr, *right = nullptr;
    std::uint64_t key = 0;
    char text[72];
};

std::size_t tree() {
    Node *root = nullptr;
    std::size_t made = 0;
    std::uint64_t state = 88172645463325252u;
    for (int number = 0; number < 150000; number++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        Node **place = &root;
        while (*place) place = state < (*place)->key ? &(*place)->left : &(*place)->right;
        *place = new Node;
        (*place)->key = state;
        std::memset((*place)->text, number, sizeof (*place)->text);
        made++;
    }
    std::function<void(Node *)> drop = [&](Node *node) {
        if (!node) return;
        drop(node->right);
        drop(node->left);
        delete node;
    };
    drop(root);
    return made;
}

void fill_and_free(std::size_t count, std::size_t size, pthread_barrier_t *all_full = nullptr) {
    std::vector<std::unique_ptr<char[]>> blocks;
    for (std::size_t number = 0; number < count; number++) {
        blocks.emplace_back(new char[size]);
        std::memset(blocks.back().get(), static_cast<int>(number), size);
    }
    if (all_full) pthread_barrier_wait(all_full);
}

std::size_t rounds() {
    for (std::size_t round = 1; round <= 5; round++) fill_and_free(round * 30000, 120);
    return 15 * 30000;
}

std::size_t crowd() {
    pthread_barrier_t all_full;
    pthread_barrier_init(&all_full, nullptr, 4);
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++)
        threads.emplace_back(fill_and_free, 60000, 100 + number * 16, &all_full);
    for (auto &thread : threads) thread.join();
    pthread_barrier_destroy(&all_full);
    return 4 * 60000;
}

}  // namespace

int main(int count, char **words) {
    const std::map<std::string, std::size_t (*)()> all = {
        {"index", index}, {"layers", layers}, {"tree", tree}, {"rounds", rounds}, {"crowd", crowd}};
    auto found = all.find(count > 1 ? words[1] : "");
    if (found == all.end()) {
        std::fprintf(stderr, "usage: summit index|layers|tree|rounds|crowd\n");
        return 2;
    }
    std::printf("%zu\n", found->second());
    return 0;
}
