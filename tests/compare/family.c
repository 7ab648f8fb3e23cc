/* Shared pages: 16 MiB are filled, then four children are forked that each fill 4 MiB of their own, and all are held.
   Each page counted once that is 32 MiB; the resident sets of the five add up to 96. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
	char *shared = malloc(16 << 20);
	memset(shared, 1, 16 << 20);
	for (int child = 0; child < 4; child++) {
		if (fork() == 0) {
			char *own = malloc(4 << 20);
			memset(own, 2, 4 << 20);
			struct timespec time = {0, 700000000};
			nanosleep(&time, NULL);
			_exit(own[5] + shared[5] == 3 ? 0 : 1);
		}
	}
	int failed = 0, status;
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 1 : 0;
}
