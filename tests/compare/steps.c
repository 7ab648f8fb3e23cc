/* A heap that is predicted: 4,000 blocks of 8 KiB are filled (31.25 MiB) and held, then all but every 16th are
   released, and the rest is held for a second, in which an allocator may give back; then 20 times 1,000 blocks of 1 KiB come and go, and a moment later it ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 4000, BYTES = 8192 };

static void hold(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};
	/* CLOCK: what is held is held for a time: that is what is measured */
	nanosleep(&time, NULL);
}

int main(void)
{
	static char *blocks[BLOCKS];
	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(BYTES);
		if (!blocks[i])
			return 7;
		memset(blocks[i], i, BYTES);
	}
	hold(100);
	for (int i = 0; i < BLOCKS; i++)
		if (i % 16)
			free(blocks[i]);
	hold(1200);
	for (int round = 0; round < 20; round++) {
		static char *small[1000];
		for (int i = 0; i < 1000; i++)
			small[i] = malloc(1024);
		for (int i = 0; i < 1000; i++)
			free(small[i]);
	}
	hold(100);
	puts("done");
	return 0;
}
