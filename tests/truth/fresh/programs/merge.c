/* Log files of 80 hosts are read side by side, each into a buffer that grows by 512 bytes when it is full.
 * Mended: it doubles, and is cut to its length at the end of the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "seeded.h"

struct stream { char *text; size_t length, capacity; };
enum { STREAMS = 80, LINES = 1500 };

static void stream_fill(struct stream *s, const char *line, size_t length)
{
    if (s->length + length > s->capacity) {
#ifdef MENDED
        s->capacity = s->capacity ? s->capacity * 2 : 4096;
#else
        s->capacity += 512;
#endif
        s->text = realloc(s->text, s->capacity);
    }
    memcpy(s->text + s->length, line, length);
    s->length += length;
}

int main(void)
{
    static struct stream streams[STREAMS];
    char line[256];
    size_t sum = 0;
    for (int l = 0; l < LINES; l++)
        for (int i = 0; i < STREAMS; i++) {
            int n = snprintf(line, sizeof line, "%08d host%02d GET /item/%u took %u us agent %.*s\n", l, i, seeded(100000),
                             seeded(9000), (int)seeded(40), "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101");
            stream_fill(&streams[i], line, n);
        }
    for (int i = 0; i < STREAMS; i++) {
#ifdef MENDED
        streams[i].text = realloc(streams[i].text, streams[i].length);
#endif
        sum += streams[i].length + streams[i].text[streams[i].length / 2];
    }
    printf("%zu\n", sum);
    return 0;
}
