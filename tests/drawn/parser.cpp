// A recursive parser with overloaded operators and nested, anonymous and inline namespaces.
#include <cctype>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace text::inline v2 {
struct Value;
using Object = std::map<std::string, std::unique_ptr<Value>, std::less<>>;
using Array = std::vector<std::unique_ptr<Value>>;
struct Value {
    std::string atom;
    std::unique_ptr<Object> object;
    std::unique_ptr<Array> array;
    Value &operator<<(std::unique_ptr<Value> one)
    {
        if (!array)
            array.reset(new Array);
        array->push_back(std::move(one));
        return *this;
    }
    std::unique_ptr<Value> &operator[](std::string_view key) { return (*object)[std::string(key)]; }
};

namespace {
class Parser {
    std::string_view rest;
    char next()
    {
        char c = rest.front();
        rest.remove_prefix(1);
        return c;
    }
    bool eat(char c) { return !rest.empty() && rest.front() == c && next(); }
    std::string word()
    {
        std::string made;
        while (!rest.empty() && std::isalnum(static_cast<unsigned char>(rest.front())))
            made += next();
        return made;
    }

public:
    explicit Parser(std::string_view all) : rest(all) {}
    std::unique_ptr<Value> operator()()
    {
        auto value = std::make_unique<Value>();
        if (eat('{')) {
            value->object = std::make_unique<Object>();
            while (!eat('}')) {
                std::string key = word();
                eat(':');
                (*value)[key] = (*this)();
                eat(',');
            }
        } else if (eat('[')) {
            while (!eat(']')) {
                *value << (*this)();
                eat(',');
            }
        } else {
            value->atom = word();
        }
        return value;
    }
};
}
std::unique_ptr<Value> parse(std::string_view all) { return Parser(all)(); }
}

static text::Array *documents;

int main()
{
    std::string one = "{averylongkeythatisnotheldinline:[1,2,averylongatomthatisnotheldinline],b:{c:[[3],[4,5]],d:e}}";
    documents = new text::Array;
    for (int i = 0; i < 100; i++)
        documents->push_back(text::parse(one));
    return 0;
}
