// A queue of jobs, each with a log of 128 KiB of its own, of which it writes some kilobytes.
// Mended: the log begins with 4 KiB, which is what jobs need.
#include <cstdio>
#include <algorithm>
#include <memory>
#include <vector>
#include "dice.h"

#ifdef MENDED
constexpr size_t log_bytes = 4096;
#else
constexpr size_t log_bytes = 128 * 1024;
#endif

struct Job {
    std::unique_ptr<char[]> log;
    size_t written = 0;
    unsigned rank;

    explicit Job(unsigned rank) : log(new char[log_bytes]), rank(rank) {}

    void say(const char *what, unsigned n)
    {
        written += std::snprintf(log.get() + written, log_bytes - written, "%s %u of %u\n", what, n, rank);
    }
};

static bool later(const std::unique_ptr<Job> &a, const std::unique_ptr<Job> &b) { return a->rank < b->rank; }

int main()
{
    const unsigned count = 1500;
    std::vector<std::unique_ptr<Job>> jobs;
    jobs.reserve(count);
    for (unsigned i = 0; i < count; i++) {
        auto job = std::make_unique<Job>(roll(100000));
        for (unsigned line = 0; line < 150; line++)
            job->say("step", line);
        jobs.push_back(std::move(job));
    }
    skinflint_mark("queued");
    std::sort(jobs.begin(), jobs.end(), later);
    unsigned long sum = 0;
    for (auto &job : jobs)
        for (size_t i = 0; i < job->written; i++)
            sum = sum * 31 + job->log[i];
    std::printf("%lu\n", sum);
}
