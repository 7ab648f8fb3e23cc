/*
 * growth.c: a buffer that grows to 1 MiB, from FIRST bytes on by STEP bytes, or to twice its size if STEP is 0.
 *
 *     growth 1 1          byte by byte:  1 + 2 + ... + 1,048,576 bytes requested in all
 *     growth 4096 4096    page by page:  4,096 + 8,192 + ... + 1,048,576
 *     growth 4096 0       doubling:      4,096 + 8,192 + 16,384 + ... + 1,048,576
 */
#include <stdlib.h>

enum { LAST = 1 << 20 };

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t first = strtoul(argv[1], NULL, 10), step = strtoul(argv[2], NULL, 10);
    char *volatile buffer = NULL;
    for (size_t bytes = first; bytes <= LAST; bytes = step ? bytes + step : 2 * bytes) {
        char *next = realloc(buffer, bytes);
        if (next == NULL)
            return 1;
        buffer = next;
        buffer[bytes - 1] = 1;
    }
    free(buffer);
    return 0;
}
