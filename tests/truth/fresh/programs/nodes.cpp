// A document tree of shared pointers for each request; a child holds its parent, too, so that no tree is ever released.
// Mended: the way up is a weak pointer.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>
#include "seeded.h"
#include "skinflint.h"

struct Node {
    std::string text;
    std::vector<std::shared_ptr<Node>> children;
#ifdef MENDED
    std::weak_ptr<Node> parent;
#else
    std::shared_ptr<Node> parent;
#endif
};

static std::shared_ptr<Node> add_child(const std::shared_ptr<Node> &parent, std::string text)
{
    auto child = std::make_shared<Node>();
    child->text = std::move(text);
    child->parent = parent;
    parent->children.push_back(child);
    return child;
}

static std::string label(unsigned length)
{
    return std::string(length, char('a' + length % 26));
}

int main()
{
    char name[64];
    size_t sum = 0;
    std::vector<char> fonts(8 << 20, 'f');
    for (int request = 1; request <= 800; request++) {
        std::snprintf(name, sizeof name, "request %d begin", request);
        skinflint_mark(name);
        {
            auto root = std::make_shared<Node>();
            for (int i = 0; i < 6; i++) {
                auto section = add_child(root, label(20 + seeded(60)));
                for (unsigned j = seeded(16); j--;)
                    sum += add_child(section, label(100 + seeded(300)))->text.size();
            }
            sum += root->children.size() + fonts[seeded(8 << 20)];
        }
        std::snprintf(name, sizeof name, "request %d end", request);
        skinflint_mark(name);
    }
    skinflint_mark("served");
    std::printf("%zu\n", sum);
}
