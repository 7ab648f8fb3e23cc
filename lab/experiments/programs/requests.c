/*
 * requests.c: so many requests of each size, each released at once.
 *
 *     requests 24:205920 100:63922 116:63922     205,920 blocks of 24 bytes, then 63,922 of 100 and of 116
 *
 * It makes no other request: what a recorder counts is what stands on the command line.
 */
#include <stdlib.h>

int main(int argc, char **argv)
{
    for (int at = 1; at < argc; at++) {
        char *rest;
        size_t bytes = strtoul(argv[at], &rest, 10);
        if (*rest != ':')
            return 2;
        for (unsigned long count = strtoul(rest + 1, NULL, 10); count > 0; count--) {
            void *volatile block = malloc(bytes);
            if (block == NULL)
                return 1;
            free(block);
        }
    }
    return 0;
}
