/*
 * pins.c: survivors planted on pages, every page's blocks predicted. pins.json has the pages for a test.
 *
 * `pins`: one thread, glibc 2.36, no allocation before main. A chunk of glibc is the request plus 8, rounded
 * up to 16; the block's 8 bytes of header lie before it. A heap begins on a page, with 0x290 bytes of glibc's
 * own (its thread cache). `align` takes 3,432 bytes, a chunk of 0xd70: so the next chunk begins on a page
 * again, its header 8 bytes behind, and a block with its header, where chunks are 1,024 bytes, lies at
 *     page 1 + slot / 4, bytes 8 + 1024 * (slot % 4) and 1,023 more: the fourth of a page reaches 8 bytes
 *     into the next one.
 * 96 slots on 24 pages, in order, each by one function: h parse_header, s session, c config, and . scratch,
 * which are freed again. Then a last block by `guard`, on page 25, so that nothing above goes back.
 *
 *   page  slots  blocks there (bytes)           free   for each block
 *     0   align  align 3432                      664   664
 *     1   h...   align 8, h 1024                3064   1532
 *     2   ....   -                              4096   nobody's
 *     3   h...   h 1024                         3072   3072
 *     4   .hh.   h 1024, h 1024                 2048   1024
 *     5   h.s.   h 1024, s 1024                 2048   1024
 *     6   ...s   s 1016                         3080   3080
 *     7   ....   s 8                            4088   4088
 *     8   hhhh   h 3 x 1024, h 1016                8   2
 *     9   ssss   h 8, s 3 x 1024, s 1016           0   -
 *    10   ....   s 8                            4088   4088
 *    11   c..c   c 1024, c 1016                 2056   1028
 *    12   h...   c 8, h 1024                    3064   1532
 *    13   hsc.   h 1024, s 1024, c 1024         1024   342, 341, 341
 *    14   .h..   h 1024                         3072   3072
 *  15-20  h...   h 1024                         3072   3072
 *    21   ....   -                              4096   nobody's
 *    22   s..s   s 1024, s 1016                 2056   1028
 *    23   .s..   s 8, s 1024                    3064   1532
 *    24   ....   -                              4096   nobody's
 *    25   guard  guard 1024                     3072   3072
 *
 *   function      share   own pages     shared   blocks  pinning  live bytes  filling  freed   median, oldest
 *   parse_header  31062   10: 3 4 8 14-20    5       18       18       18432        5      5       66, 97
 *   session       17741    5: 6 7 10 22 23   3       10        7       10240        3      2       48, 79
 *   config         3929    1: 11             2        3        3        3072        1      0       54, 57
 *   guard          3072    1: 25             0        1        1        1024        1      0        1, 1
 *   align          2196    1: 0              1        1        1        3440        1      0       98, 98
 *   sum           58000, and 3 x 4096 = 12288 nobody's; 26 pages, 23 with a live byte, 22 partly free;
 *   36208 bytes live: 9 pages side by side, 8 + 1 by size.
 * Three of session's blocks lie on page 9 alone, which is full: they pin nothing. Ages are acquisitions since,
 * that of the block included, of 98: slot n is 97 - n old.
 *
 * `pins scatter`: under any allocator. 4,000 blocks of seeded sizes by four functions, written to their
 * usable ends; three quarters are freed. Prints each survivor: address, usable bytes, function.
 */
#include <malloc.h>

#include "check.h"
#include "skinflint.h"

static const char slots[] = "h..." "...." "h..." ".hh." "h.s." "...s" "...." "hhhh" "ssss" "...." "c..c" "h..."
                            "hsc." ".h.." "h..." "h..." "h..." "h..." "h..." "h..." "...." "s..s" ".s.." "....";
enum { SLOTS = sizeof slots - 1, CHUNK = 1024, SCATTERED = 4000 };

/* A function by itself on the stack, with nothing inlined into it, that takes a block and writes all of it. */
#define FUNCTION(name)                                                                     \
    __attribute__((noinline, noclone, no_icf)) static char *name(size_t size)              \
    {                                                                                      \
        char *block = malloc(size);                                                        \
        CHECK(block != NULL);                                                              \
        memset(block, 'x', malloc_usable_size(block));                                     \
        return block;                                                                      \
    }

FUNCTION(align)
FUNCTION(scratch)
FUNCTION(parse_header)
FUNCTION(session)
FUNCTION(config)
FUNCTION(guard)

static char *by(char letter, size_t size)
{
    switch (letter) {
    case 'h':
        return parse_header(size);
    case 's':
        return session(size);
    case 'c':
        return config(size);
    default:
        return scratch(size);
    }
}

static int planted(void)
{
    static char *block[SLOTS];
    char *first = align(0xd70 - 8);
    CHECK(((uintptr_t)first & 4095) == 0x290 + 16);
    for (int slot = 0; slot < SLOTS; slot++) {
        block[slot] = by(slots[slot], CHUNK - 8);
        CHECK(block[slot] == first - 0x2a0 + 4096 + 16 + slot * CHUNK);
    }
    CHECK(guard(CHUNK - 8) == first - 0x2a0 + 25 * 4096 + 16);
    int survivors = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        if (slots[slot] == '.')
            free(block[slot]);
        else
            survivors++;
    }
    skinflint_mark("pinned");
    say("pins: %d of %d survive\n", survivors, SLOTS);
    return 0;
}

static unsigned draw(unsigned below)
{
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % below;
}

static int scatter(void)
{
    static const char letters[] = "hsc.";
    static struct {
        char *block;
        char letter;
    } held[SCATTERED];
    for (int i = 0; i < SCATTERED; i++) {
        unsigned kind = draw(40);
        size_t size = kind == 0 ? 1 + draw(300000) : kind < 8 ? 1 + draw(9000) : 1 + draw(400);
        held[i].letter = letters[draw(4)];
        held[i].block = by(held[i].letter, size);
    }
    for (int i = 0; i < SCATTERED; i++) {
        if (draw(4) > 0) {
            free(held[i].block);
            held[i].block = NULL;
        }
    }
    for (int i = 0; i < SCATTERED; i++)
        if (held[i].block)
            say("%zu %zu %c\n", (size_t)held[i].block, malloc_usable_size(held[i].block), held[i].letter);
    skinflint_mark("scattered");
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "scatter") == 0)
        return scatter();
    return planted();
}
