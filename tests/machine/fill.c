/*
 * fill.c: blocks that are touched a little at a time, in a control group.
 *
 *   fill GROUP MIB MS   goes to the group of that folder, takes a MiB in blocks of 16 KiB every MS milliseconds until it has so many,
 *                       touches all of them again and again for two seconds, and ends with 0
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (16 << 10)

static void wait_ms(long ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&time, NULL); /* CLOCK: it is to take its time, and no time is judged */
}

int main(int count, char **words)
{
	if (count != 4)
		return 2;
	char path[256], own[32];
	snprintf(path, sizeof path, "%s/cgroup.procs", words[1]);
	int file = open(path, O_WRONLY), length = snprintf(own, sizeof own, "%d", getpid());
	if (file < 0 || write(file, own, length) != length)
		return 1;
	close(file);
	long blocks = atol(words[2]) * ((1 << 20) / BLOCK);
	char **held = calloc(blocks, sizeof *held);
	for (long i = 0; i < blocks; i++) {
		held[i] = malloc(BLOCK);
		if (!held[i])
			return 1;
		memset(held[i], 1, BLOCK);
		if (i % ((1 << 20) / BLOCK) == 0)
			wait_ms(atol(words[3]));
	}
	for (int turn = 0; turn < 20; turn++, wait_ms(100))
		for (long i = 0; i < blocks; i++)
			held[i][turn] = 2;
	return 0;
}
