/* Control: a ring of SLOTS messages, of which the oldest is overwritten, and two pictures that are drawn in turns. */
#include <stdlib.h>
#include <string.h>
static char *ring[SLOTS];

__attribute__((noinline)) static char *message(size_t bytes)
{
    char *it = malloc(bytes);
    memset(it, 1, bytes);
    return it;
}

__attribute__((noinline)) static char *picture(void)
{
    char *it = malloc(BYTES);
    memset(it, 1, BYTES);
    return it;
}

int main(void)
{
    char *front = picture();
    for (int i = 0; i < COUNT; i++) {
        free(ring[i % SLOTS]);
        ring[i % SLOTS] = message(100 + i * 37 % 1900);
        if (i % 50 == 0) {
            char *back = picture();
            free(front);
            front = back;
        }
    }
    return 0;
}
