/* Ten rounds of a thousand blocks from one stack, half of which are released: for run.py, which knows the stack and the
 * number of events. `keep` is global, so that nothing is optimised away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *keep[1000];

__attribute__((noinline)) void *leaf(int bytes) {
    void *block = malloc(bytes);
    memset(block, 1, bytes);
    return block;
}

__attribute__((noinline)) void fill(int blocks) {
    for (int i = 0; i < blocks; i++) keep[i] = leaf(1000 + i);
}

__attribute__((noinline)) void drop(int blocks) {
    for (int i = 0; i < blocks; i += 2) {
        free(keep[i]);
        keep[i] = 0;
    }
}

int main(void) {
    for (int round = 0; round < 10; round++) {
        fill(1000);
        drop(1000);
    }
    puts("done");
    return 0;
}
