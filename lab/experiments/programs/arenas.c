/* Arenas as Firefox's PLArena had them: COUNT chunks of 4,096 bytes for the user, each asked for with its header and room for
 * alignment. arenas HEADER COUNT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words)
{
    size_t header = count > 2 ? strtoul(words[1], 0, 10) : 39;
    long chunks = count > 2 ? atol(words[2]) : 1000;
    char **all = calloc(chunks, sizeof *all);
    for (long i = 0; i < chunks; i++) {
        all[i] = malloc(4096 + header);
        memset(all[i], 1, 4096 + header);
    }
    printf("%d\n", all[chunks - 1][0]);
    return 0;
}
