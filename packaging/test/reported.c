/* reported.c FILE: a program that reports its own memory, and writes the report itself.
 *
 * Not here: what a report has (tests/reporters).
 */
#include <stdio.h>
#include <skinflint_report.h>

static void pages(void *context, skinflint_report *out)
{
    (void)context;
    skinflint_report_heap(out, "explicit/pages", 4096, "Pages.");
}

int main(int count, char **words)
{
    if (count != 2 || skinflint_reporter_add("pages", pages, NULL) == 0 || skinflint_memory_save(words[1]) != 0) {
        fprintf(stderr, "reported: %s\n", skinflint_report_error());
        return 1;
    }
    return 0;
}
