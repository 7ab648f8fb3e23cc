/*
 * pprofd.c: it serves a heap profile on a port of its own, and answers on a thread.
 *
 * pprofd PORTFILE: the port goes to PORTFILE. 3 blocks of 1000 bytes are live in the profile until the first line of its input,
 * 5 afterwards, all by `planted` at served.c:17, called by `main`; the distance of samples is 1: each block is one. Its own:
 * 10 x 333 by `own`, kept. It ends when its input does, with status 6.
 */
#include "check.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

static atomic_int live = 3;
static void *kept[10];

NOINLINE static void own(void)
{
    for (int i = 0; i < 10; i++)
        kept[i] = must_malloc(333);
}

static unsigned char *text(unsigned char *to, const char *text)
{
    *to++ = 6 << 3 | 2;
    *to++ = strlen(text);
    return (unsigned char *)memcpy(to, text, strlen(text)) + strlen(text);
}

/* Numbers are below 128, or of two bytes: bytes in use are 1000 a block. */
static size_t profile(unsigned char *to)
{
    int blocks = atomic_load(&live), bytes = blocks * 1000;
    unsigned char fixed[] = {
        1 << 3 | 2, 2, 1 << 3, 1,                 /* sample_type: inuse_objects */
        1 << 3 | 2, 2, 1 << 3, 2,                 /* inuse_space */
        2 << 3 | 2, 9, 1 << 3 | 2, 2, 1, 2,       /* sample: places 1 and 2 */
        2 << 3 | 2, 3, blocks, 0x80 | (bytes & 0x7f), bytes >> 7,
        4 << 3 | 2, 8, 1 << 3, 1, 4 << 3 | 2, 4, 1 << 3, 1, 2 << 3, 17,
        4 << 3 | 2, 8, 1 << 3, 2, 4 << 3 | 2, 4, 1 << 3, 2, 2 << 3, 30,
        5 << 3 | 2, 6, 1 << 3, 1, 2 << 3, 3, 4 << 3, 5, /* function: planted */
        5 << 3 | 2, 6, 1 << 3, 2, 2 << 3, 4, 4 << 3, 5, /* main */
        12 << 3, 1,                               /* period */
    };
    memcpy(to, fixed, sizeof fixed);
    unsigned char *end = text(to + sizeof fixed, "");
    const char *texts[] = {"inuse_objects", "inuse_space", "planted", "main", "served.c"};
    for (int i = 0; i < 5; i++)
        end = text(end, texts[i]);
    return end - to;
}

static void *serve(void *listener)
{
    for (;;) {
        int to = accept((int)(long)listener, NULL, NULL);
        char head[4096];
        unsigned char body[512];
        if (to < 0 || read(to, head, sizeof head) <= 0)
            continue;
        size_t bytes = profile(body);
        int length = snprintf(head, sizeof head, "HTTP/1.0 200 OK\r\nContent-Length: %zu\r\n\r\n", bytes);
        if (write(to, head, length) < 0 || write(to, body, bytes) < 0)
            perror("write");
        close(to);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    pthread_t thread;
    if (argc < 2)
        return 1;
    own();
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 16) || getsockname(listener, (void *)&at, &length))
        return 2;
    pthread_create(&thread, NULL, serve, (void *)(long)listener);
    FILE *file = fopen(argv[1], "w");
    if (!file || fprintf(file, "%d\n", ntohs(at.sin_port)) < 0 || fclose(file))
        return 3;
    char line[16];
    while (read(0, line, sizeof line) > 0)
        atomic_store(&live, 5);
    return 6;
}
