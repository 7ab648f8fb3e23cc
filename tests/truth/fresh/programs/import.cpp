// A database imports its tables; each has a vector of rows to be sorted, which is cleared after its table is written and keeps
// its capacity. Mended: cleared by swapping it with an empty one.
#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <vector>
#include "seeded.h"
#include "skinflint.h"

struct Row { unsigned key, column, value; };
struct Table { std::vector<Row> scratch; std::vector<unsigned> index; };

static void stage(Table &table, unsigned rows)
{
    for (unsigned i = 0; i < rows; i++)
        table.scratch.push_back({seeded(1u << 30), i, seeded(1000)});
}

static void write(Table &table)
{
    std::sort(table.scratch.begin(), table.scratch.end(), [](const Row &a, const Row &b) { return a.key < b.key; });
    table.index.reserve(table.scratch.size() / 8 + 1);
    for (size_t i = 0; i < table.scratch.size(); i += 8)
        table.index.push_back(table.scratch[i].key);
#ifdef MENDED
    std::vector<Row>().swap(table.scratch);
#else
    table.scratch.clear();
#endif
}

int main()
{
    std::vector<Table> tables(80);
    skinflint_mark("import begin");
    for (Table &table : tables) {
        stage(table, 8000 + seeded(8000));
        write(table);
    }
    skinflint_mark("import end");
    unsigned long sum = 0;
    for (int i = 0; i < 100000; i++) {
        const Table &table = tables[seeded(80)];
        sum += *std::lower_bound(table.index.begin(), table.index.end() - 1, seeded(1u << 30));
    }
    skinflint_mark("serving");
    // CLOCK: a program that goes on, at rest; nothing is judged by it
    usleep(200000);
    std::printf("%lu\n", sum);
}
