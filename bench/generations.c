/* generations: forks three deep, and each grandchild says what it holds.
 *
 *   generations CHAINS        first process ──► CHAINS children ──► one grandchild each
 *
 *   first     500 blocks of 200 to 699 bytes
 *   child     frees some of them, takes some of its own of 1,000 and more, forks, waits
 *   grandchild  frees some of both, takes others, regrows some, prints "PID BLOCKS BYTES", ends
 *
 * D1  What is freed and taken is drawn from the chain's number: no two chains are alike.
 * D2  Sums are kept beside the blocks, by each call that succeeds; nothing here allocates but what is counted.
 * D3  Lines are written by one write(2) each, shorter than a pipe writes at once.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST = 500, OWN = 60 };

struct held {
    void *block;
    size_t size;
};

static struct held first[FIRST], second[OWN], third[OWN];
static uint64_t blocks, bytes, state;

static uint64_t draw(uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void take(struct held *held, size_t size) {
    held->block = malloc(size);
    if (!held->block) _exit(9);
    held->size = size;
    blocks++;
    bytes += size;
}

static void drop(struct held *held) {
    if (!held->block) return;
    free(held->block);
    blocks--;
    bytes -= held->size;
    held->block = NULL;
}

static void regrow(struct held *held, size_t size) {
    if (!held->block) return;
    void *block = realloc(held->block, size);
    if (!block) _exit(9);
    bytes += size - held->size;
    held->block = block;
    held->size = size;
}

static void grandchild(void) {
    for (int n = 0; n < 80; n++) drop(&first[draw(FIRST)]);
    for (int n = 0; n < 20; n++) drop(&second[draw(OWN)]);
    for (int n = 0; n < 10; n++) regrow(&first[draw(FIRST)], 10 + draw(3000));
    uint64_t own = 1 + draw(OWN);
    for (uint64_t n = 0; n < own; n++) take(&third[n], 3000 + draw(500));
    for (int n = 0; n < 10; n++) drop(&third[draw(OWN)]);
    char line[80];
    int length = snprintf(line, sizeof line, "%d %llu %llu\n", (int)getpid(), (unsigned long long)blocks,
                          (unsigned long long)bytes);
    if (write(1, line, (size_t)length) != length) _exit(9);
}

/* Forks; the copy runs `work` and ends; whether it ended well. */
static int in_a_copy(void (*work)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        work();
        exit(0);
    }
    int status = -1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void child(void) {
    for (int n = 0; n < 50; n++) drop(&first[draw(FIRST)]);
    uint64_t own = 1 + draw(OWN);
    for (uint64_t n = 0; n < own; n++) take(&second[n], 1000 + draw(500));
    for (int n = 0; n < 5; n++) regrow(&first[draw(FIRST)], 10 + draw(3000));
    if (!in_a_copy(grandchild)) _exit(9);
}

int main(int count, char **words) {
    long chains = count > 1 ? strtol(words[1], NULL, 10) : 0;
    if (chains < 1) {
        fprintf(stderr, "usage: generations CHAINS\n");
        return 2;
    }
    for (int n = 0; n < FIRST; n++) take(&first[n], 200 + (size_t)n);
    for (long chain = 0; chain < chains; chain++) {
        state = (uint64_t)chain * 2654435761u + 1;
        if (!in_a_copy(child)) return 1;
    }
    return 0;
}
