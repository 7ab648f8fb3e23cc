/* A spreadsheet is read row by row; each column makes room for 64 more cells whenever it is full.
 * Mended: a column that is full doubles. */
#include <stdio.h>
#include <stdlib.h>
#include "dice.h"

enum { COLUMNS = 70, ROWS = 12288 };
struct column { double *cells; unsigned used, room; };
static struct column columns[COLUMNS];

static void column_push(struct column *c, double value)
{
    if (c->used == c->room) {
#ifdef MENDED
        c->room = c->room ? c->room * 2 : 96;
#else
        c->room += 64;
#endif
        c->cells = realloc(c->cells, c->room * sizeof *c->cells);
    }
    c->cells[c->used++] = value;
}

static void read_row(unsigned row)
{
    for (int i = 0; i < COLUMNS; i++)
        column_push(&columns[i], (double)roll(1000) / (row + 1));
}

int main(void)
{
    double sum = 0;
    for (unsigned row = 0; row < ROWS; row++)
        read_row(row);
    skinflint_mark("read");
    for (int i = 0; i < COLUMNS; i++)
        for (unsigned k = 0; k < columns[i].used; k++)
            sum += columns[i].cells[k];
    printf("%.3f\n", sum);
    return 0;
}
