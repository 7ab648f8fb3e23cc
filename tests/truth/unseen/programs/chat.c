/* Messages of a chat: a head of 16 bytes in front of room for 1,024 bytes of text. The whole is a little more than a class.
 * Mended: there is room for 1,008 bytes, so that head and text are 1,024. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dice.h"

enum { ROOMS = 24, KEPT = 512 };
#ifdef MENDED
enum { ROOM_FOR = 1008 };
#else
enum { ROOM_FOR = 1024 };
#endif
struct message { unsigned author, sent; unsigned short length, likes; unsigned thread; char text[ROOM_FOR]; };
struct room { struct message *last[KEPT]; unsigned next; };
static struct room rooms[ROOMS];

static struct message *message_new(unsigned author, unsigned sent, unsigned length)
{
    struct message *m = malloc(sizeof *m);
    m->author = author;
    m->sent = sent;
    m->length = length;
    m->likes = 0;
    for (unsigned i = 0; i < length; i++)
        m->text[i] = 'a' + (author + i) % 26;
    return m;
}

static void post(struct room *r, struct message *m)
{
    struct message **place = &r->last[r->next++ % KEPT];
    free(*place);
    *place = m;
}

int main(void)
{
    unsigned long sum = 0;
    for (unsigned t = 0; t < 40000; t++) {
        struct room *r = &rooms[t % ROOMS];
        post(r, message_new(roll(5000), t, 100 + roll(900)));
        struct message *liked = r->last[roll(r->next < KEPT ? r->next : KEPT)];
        sum += ++liked->likes + liked->text[liked->length - 1];
    }
    skinflint_mark("evening");
    printf("%lu\n", sum);
    return 0;
}
