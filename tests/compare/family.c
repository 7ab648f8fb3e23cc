/* Shared pages: 16 MiB are filled, then four children are forked that each fill 4 MiB of their own, and when all
   have, all are held for 0.7 s.
   Each page counted once that is 32 MiB; the resident sets of the five add up to 96. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(void)
{
	/* How many children have filled theirs. */
	unsigned *full = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (full == MAP_FAILED)
		return 2;
	alarm(120);
	char *shared = malloc(16 << 20);
	memset(shared, 1, 16 << 20);
	for (int child = 0; child < 4; child++) {
		if (fork() == 0) {
			char *own = malloc(4 << 20);
			memset(own, 2, 4 << 20);
			alarm(120);
			__atomic_fetch_add(full, 1, __ATOMIC_RELEASE);
			while (__atomic_load_n(full, __ATOMIC_ACQUIRE) < 4)
				/* CLOCK: poll step of a wait that the alarm bounds */
				usleep(1000);
			struct timespec time = {0, 700000000};
			/* CLOCK: what is held is held for a time: that is what is measured */
			nanosleep(&time, NULL);
			_exit(own[5] + shared[5] == 3 ? 0 : 1);
		}
	}
	int failed = 0, status;
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 1 : 0;
}
