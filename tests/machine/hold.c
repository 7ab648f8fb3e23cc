/*
 * hold.c: memory of known kinds, held until it is killed.
 *
 *   hold ANONYMOUS_MIB FILE   touches so much anonymous memory, maps FILE and reads each of its pages, says "held"
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
	if (count != 3)
		return 2;
	size_t bytes = strtoul(words[1], NULL, 10) << 20;
	char *held = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (held == MAP_FAILED)
		return 1;
	memset(held, 1, bytes);
	int file = open(words[2], O_RDONLY);
	struct stat about;
	if (file < 0 || fstat(file, &about) != 0)
		return 1;
	const volatile char *shared = mmap(NULL, about.st_size, PROT_READ, MAP_SHARED, file, 0);
	if (shared == MAP_FAILED)
		return 1;
	for (off_t at = 0; at < about.st_size; at += 4096)
		(void)shared[at];
	puts("held");
	fflush(stdout);
	for (;;)
		pause();
}
