// Trees of templates, lambdas and variants, built by visitors that the compiler inlines into one another.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace tree {
struct Node;
using Child = std::unique_ptr<Node>;
struct Sum { std::vector<Child> terms; };
struct Name { std::string text; };
struct Number { double value; };
struct Node { std::variant<Sum, Name, Number> what; };

template <class What, class... Given> Child make(Given &&...given)
{
    return std::make_unique<Node>(Node{What{std::forward<Given>(given)...}});
}

template <int Depth> struct Maker {
    static Child at(unsigned seed)
    {
        Sum sum;
        for (unsigned i = 0; i < 3; i++)
            sum.terms.push_back(Maker<Depth - 1>::at(seed * 5 + i));
        return make<Sum>(std::move(sum));
    }
};
template <> struct Maker<0> {
    static Child at(unsigned seed)
    {
        if (seed % 2)
            return make<Name>("a long name of a variable: " + std::string(seed % 40, 'x'));
        return make<Number>(double(seed));
    }
};
}

static std::vector<tree::Child> *kept;
static std::vector<std::function<double()>> *later;

int main()
{
    kept = new std::vector<tree::Child>;
    later = new std::vector<std::function<double()>>;
    auto keep = [](auto &&child) { kept->emplace_back(std::forward<decltype(child)>(child)); };
    for (unsigned i = 0; i < 20; i++) {
        keep(tree::Maker<4>::at(i));
        std::vector<double> numbers(17, i);
        later->push_back([numbers, i] { return numbers[i % 17]; });
    }
    std::for_each(later->begin(), later->end(), [](auto &one) { kept->push_back(tree::make<tree::Number>(one())); });
    return 0;
}
