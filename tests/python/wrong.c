/* A program that exports what Python 3.11.2 exports, and whose chain of frames contradicts that.
 *
 *   frame   the chain begins at an address where nothing is, from the first
 *   code    a frame's code is another object, from the first
 *   late    the chain is right, and proves the layout; then a frame's code is another object
 *   right   the chain is right to the end
 *
 * Each way allocates on, and says at its end that it is alive. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member { const char *name; long kind, offset, flags; const char *about; };
static struct member members[] = {
    {"co_filename", 6, 112, 1, 0}, {"co_qualname", 6, 128, 1, 0}, {"co_linetable", 6, 136, 1, 0},
    {"co_firstlineno", 1, 72, 1, 0}, {0, 0, 0, 0, 0},
};
struct type { unsigned long words[48]; };
const unsigned Py_Version = 0x030b02f0;
struct type PyCode_Type = {{[4] = 184, [30] = (unsigned long)members}};
struct type PyUnicode_Type, PyBytes_Type;

static unsigned long state[64], frame[16], code[64], name[16], table[16];

void *PyGILState_GetThisThreadState(void) { return state; }
int _Py_IsFinalizing(void) { return 0; }

void *volatile held[4096];

__attribute__((noinline)) static void allocate(int from, int to) {
    for (int i = from; i < to; i++)
        held[i] = malloc(5000 + i);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    volatile unsigned long cframe[3] = {0, (unsigned long)frame, 0};
    state[7] = (unsigned long)cframe;
    frame[4] = (unsigned long)code;
    frame[7] = (unsigned long)code + 184;
    frame[8] = 1UL << 32; /* is_entry */
    code[1] = (unsigned long)&PyCode_Type;
    code[2] = 100;
    code[9] = 17;
    code[14] = code[16] = (unsigned long)name;
    code[17] = (unsigned long)table;
    name[1] = (unsigned long)&PyUnicode_Type;
    name[2] = 4;
    name[4] = 1UL << 2 | 1 << 5 | 1 << 6;
    memcpy(&name[6], "made", 4);
    table[1] = (unsigned long)&PyBytes_Type;
    if (!strcmp(how, "frame"))
        cframe[1] = 0x5ead0000;
    if (!strcmp(how, "code"))
        frame[4] = (unsigned long)name;
    allocate(0, 2048);
    if (!strcmp(how, "late"))
        frame[4] = (unsigned long)name;
    allocate(2048, 4096);
    state[7] = 0;
    puts("alive");
    return 0;
}
