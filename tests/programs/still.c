/* still.c: the static program of lost.c, into which nothing can be preloaded. Ends with how many arguments it has. */
#include "check.h"

int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 1)
        write(1, "still\n", 6) == 6 ? (void)0 : _exit(1);
    return argc - 1;
}
