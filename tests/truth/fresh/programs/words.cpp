// Words of a text are counted; each is made a std::string of its own before it is looked up.
// Mended: looked up by std::string_view, a string is made for a new word only.
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "seeded.h"

static std::map<std::string, int, std::less<>> counts;

static void count_word(const char *begin, size_t length)
{
#ifdef MENDED
    std::string_view word(begin, length);
    auto known = counts.find(word);
    if (known == counts.end())
        known = counts.emplace(std::string(word), 0).first;
    known->second++;
#else
    std::string word(begin, length);
    counts[word]++;
#endif
}

int main()
{
    std::vector<std::string> vocabulary;
    for (int i = 0; i < 3000; i++)
        vocabulary.push_back("internationalization_of_term_" + std::to_string(i * 7919));
    std::string text;
    text.reserve(24 << 20);
    while (text.size() < (24 << 20) - 64)
        text += vocabulary[seeded(3000)] + ' ';
    for (size_t at = 0, space; (space = text.find(' ', at)) != std::string::npos; at = space + 1)
        count_word(text.data() + at, space - at);
    int most = 0;
    for (const auto &[word, count] : counts)
        most = std::max(most, count);
    std::printf("%zu %d\n", counts.size(), most);
}
