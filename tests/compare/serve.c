/* A server without clients: 8 MiB are filled, then nothing happens until somebody sends SIGTERM. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_term(int signal) { _exit(signal == SIGTERM ? 0 : 1); }

int main(void)
{
	for (int i = 0; i < 1024; i++) {
		char *block = malloc(8192);
		memset(block, 1, 8192);
	}
	signal(SIGTERM, on_term);
	for (;;)
		pause();
}
