// A program for the soak: threads with phases, blocks that change hands, threads that end, and forks.
//
//   soak SECONDS SEED        four lines a second on stdout: "second rss_kb blocks"; status 1 if a content has changed
//
// Every phase takes as long as every other and fills to the same level, so that what is resident at the same
// point of each round must be the same for ever.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 3, SLOTS = 3000, SHELF = 256, PHASES = 4, STEPS = 4000 };

struct block {
  uint32_t bytes;
  uint32_t key;
};

static _Atomic(struct block *) shelf[SHELF];
static atomic_int stop;
static atomic_long live;

static uint64_t next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

static void broken(const struct block *block, const char *what) {
  fprintf(stderr, "soak: block %p of %u bytes: %s\n", (const void *)block, block->bytes, what);
  _exit(1);
}

static void fill(struct block *block) {
  memset(block + 1, (int)(block->key & 255), block->bytes - sizeof *block);
}

static void check(const struct block *block) {
  const unsigned char *at = (const unsigned char *)(block + 1);
  for (uint32_t i = 0; i < block->bytes - sizeof *block; i++)
    if (at[i] != (block->key & 255)) broken(block, "its content has changed");
}

static uint32_t draw(uint64_t *state, int phase) {
  uint64_t r = next(state);
  switch (phase) {
  case 0: return 16 + r % 200;
  case 1: return 500 + r % 3000;
  case 2: return r % 50 ? 16 + r % 1000 : 40000 + r % 200000;
  default: return 64 + r % 30000 / (1 + r / 64 % 16);
  }
}

static struct block *begin(uint64_t *state, int phase) {
  uint32_t bytes = draw(state, phase);
  struct block *block = next(state) % 8 ? malloc(bytes) : calloc(1, bytes);
  if (!block) {
    fputs("soak: no memory\n", stderr);
    _exit(1);
  }
  *block = (struct block){bytes, (uint32_t)next(state)};
  fill(block);
  atomic_fetch_add(&live, 1);
  return block;
}

static void end(struct block *block) {
  if (!block) return;
  check(block);
  free(block);
  atomic_fetch_sub(&live, 1);
}

static void *one_life(void *seed) {
  static _Thread_local struct block *mine[SLOTS];
  uint64_t state = (uint64_t)(uintptr_t)seed;
  for (int phase = 0; phase < PHASES && !atomic_load(&stop); phase++) {
    for (int step = 0; step < STEPS * 4; step++) {
      struct block **slot = &mine[next(&state) % SLOTS];
      switch (next(&state) % 8) {
      case 0: // to or from another thread
        *slot = atomic_exchange(&shelf[next(&state) % SHELF], *slot);
        break;
      case 1:
        if (*slot) {
          struct block old = **slot;
          check(*slot);
          uint32_t bytes = draw(&state, phase);
          struct block *moved = realloc(*slot, bytes);
          if (!moved) _exit(1);
          if (moved->key != old.key) broken(moved, "realloc has lost its head");
          moved->bytes = bytes;
          fill(moved);
          *slot = moved;
          break;
        } // fall through
      default:
        end(*slot);
        *slot = begin(&state, phase);
      }
    }
    // Most of a phase goes at its end.
    for (int i = 0; i < SLOTS; i++)
      if (i % 10) {
        end(mine[i]);
        mine[i] = NULL;
      }
  }
  for (int i = 0; i < SLOTS; i++) end(mine[i]);
  return NULL;
}

static void *worker(void *seed) {
  uint64_t state = (uint64_t)(uintptr_t)seed;
  while (!atomic_load(&stop)) {
    pthread_t life;
    if (pthread_create(&life, NULL, one_life, (void *)(uintptr_t)next(&state))) _exit(1);
    pthread_join(life, NULL);
  }
  return NULL;
}

static long rss_kb(void) {
  long pages = 0, size;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &size, &pages) != 2) _exit(1);
  fclose(file);
  return pages * 4;
}

static void fork_once(uint64_t *state) {
  pid_t child = fork();
  if (child == 0) {
    alarm(60);
    for (int i = 0; i < 2000; i++) end(begin(state, i % PHASES));
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    fprintf(stderr, "soak: a child ended with %d\n", status);
    _exit(1);
  }
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fputs("usage: soak SECONDS SEED\n", stderr);
    return 2;
  }
  int seconds = atoi(argv[1]);
  uint64_t state = strtoull(argv[2], NULL, 10);
  pthread_t workers[WORKERS];
  for (int i = 0; i < WORKERS; i++)
    if (pthread_create(&workers[i], NULL, worker, (void *)(uintptr_t)next(&state))) return 1;
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int tick = 1;; tick++) {
    usleep(250000);
    if (tick % 8 == 0) fork_once(&state);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double since = (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9;
    printf("%.3f %ld %ld\n", since, rss_kb(), atomic_load(&live));
    fflush(stdout);
    // By ticks, so that a run has as many samples on a busy machine; each is a quarter of a second at least.
    if (tick >= 4 * seconds) break;
  }
  atomic_store(&stop, 1);
  for (int i = 0; i < WORKERS; i++) pthread_join(workers[i], NULL);
  for (int i = 0; i < SHELF; i++) end(atomic_load(&shelf[i]));
  if (atomic_load(&live) != 0) {
    fprintf(stderr, "soak: %ld blocks left\n", atomic_load(&live));
    return 1;
  }
  return 0;
}
