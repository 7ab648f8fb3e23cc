/*
 * skinflint_gtest.h: budgets of memory for tests of GoogleTest.
 *
 *     #include "skinflint_gtest.h"
 *     SKINFLINT_GTEST;                                        // once, in one source file: a phase for each test
 *
 *     TEST(Cache, Forgets) {
 *         SKINFLINT_BUDGET("growth=0 peak-live=64KiB allocations=100");
 *         ...
 *     }
 *
 *     skinflint check --marked-budgets -- ./tests             # 0 held, 3 broken with the stacks, 1 a test failed
 *     skinflint check --phase '*:growth=0' -- ./tests         # a budget for each test, without a word in them
 *
 * T1  Nothing is linked, and without the recorder a mark is one load and one branch: tests run as ever.
 * T2  Neither the listener nor a budget allocates. Of what GoogleTest itself does, the test's object and the flags that
 *     it saves are in a test's figures: two allocations, freed before its end.
 * T3  Names longer than 80 bytes are cut, and closed with a number made of the whole: marks have 128 bytes.
 *
 * C++11 and later; GoogleTest 1.8 and later. Not here: figures and limits (docs/check.md), marks (skinflint.h).
 */
#ifndef SKINFLINT_GTEST_H
#define SKINFLINT_GTEST_H

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "skinflint.h"

namespace skinflint {

/* Writes what `info` is called in marks: Suite.Name (T3). */
inline void gtest_name(const ::testing::TestInfo &info, char *to, size_t bytes)
{
    const size_t longest = 80;
    /* Its older name is there in every release. */
    const char *const parts[] = {info.test_case_name(), ".", info.name()};
    size_t length = 0;
    uint32_t sum = 2166136261u;
    for (const char *part : parts) {
        for (; *part; part++) {
            sum = (sum ^ static_cast<unsigned char>(*part)) * 16777619u;
            if (length + 1 < bytes && length < longest)
                to[length] = *part;
            length++;
        }
    }
    if (length <= longest)
        to[length] = 0;
    else
        std::snprintf(to + longest - 9, 10, "~%08x", static_cast<unsigned>(sum));
}

/* Makes each test a phase: marks `Suite.Name begin` and `Suite.Name end`. */
class GtestListener : public ::testing::EmptyTestEventListener {
    static void mark(const ::testing::TestInfo &info, const char *what)
    {
        char text[128];
        gtest_name(info, text, sizeof text);
        std::strcat(text, what);
        skinflint_mark(text);
    }
    void OnTestStart(const ::testing::TestInfo &info) override { mark(info, " begin"); }
    void OnTestEnd(const ::testing::TestInfo &info) override { mark(info, " end"); }
};

/* Adds the listener: in main() before RUN_ALL_TESTS(), or by SKINFLINT_GTEST where main is GoogleTest's. */
inline bool gtest_listen()
{
    /* GoogleTest owns it. As the last one added it hears of a test's begin last, and of its end first. */
    ::testing::UnitTest::GetInstance()->listeners().Append(new GtestListener);
    return true;
}

/* Marks budgets of the running test: FIGURE=LIMIT, with spaces between; a mark for each. */
inline void gtest_budget(const char *figures)
{
    const ::testing::TestInfo *info = ::testing::UnitTest::GetInstance()->current_test_info();
    if (!info)
        return;
    char text[128];
    gtest_name(*info, text, sizeof text);
    std::strcat(text, " budget ");
    char *rest = text + std::strlen(text);
    for (size_t room = sizeof text - std::strlen(text); *figures; figures += std::strspn(figures, " ,")) {
        const size_t length = std::strcspn(figures, " ,");
        /* A limit that does not fit is cut, and so is refused by `skinflint check`. */
        std::snprintf(rest, room, "%.*s", static_cast<int>(length), figures);
        if (length)
            skinflint_mark(text);
        figures += length;
    }
}

} /* namespace skinflint */

/* At namespace scope, once in the program. */
#define SKINFLINT_GTEST static const bool skinflint_gtest_listens_ __attribute__((unused)) = ::skinflint::gtest_listen()
/* In a test, anywhere in its body or its fixture's SetUp. */
#define SKINFLINT_BUDGET(figures) ::skinflint::gtest_budget(figures)

#endif /* SKINFLINT_GTEST_H */
