// Documents are rendered by appending to a std::string, whose capacity doubles, and then kept.
// Mended: shrink_to_fit when a document is done.
#include <cstdio>
#include <string>
#include <vector>
#include "seeded.h"
#include "skinflint.h"

static std::string render(int number, unsigned words)
{
    static const char *const some[] = {"memory", "is", "given", "back", "when", "nothing", "needs", "it", "any", "more"};
    std::string out;
    out += "<h1>" + std::to_string(number) + "</h1>\n";
    for (unsigned i = 0; i < words; i++) {
        out += some[seeded(10)];
        out += i % 12 == 11 ? '\n' : ' ';
    }
#ifdef MENDED
    out.shrink_to_fit();
#endif
    return out;
}

int main()
{
    std::vector<std::string> documents;
    documents.reserve(4000);
    for (int i = 0; i < 4000; i++)
        documents.push_back(render(i, 760 + seeded(200)));
    skinflint_mark("rendered");
    size_t sum = 0;
    for (int i = 0; i < 200000; i++) {
        const std::string &d = documents[seeded(4000)];
        sum += d[seeded(d.size())];
    }
    std::printf("%zu\n", sum);
}
