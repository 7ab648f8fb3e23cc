/*
 * fitted.c: sizes whose fit profile can be worked out by hand. Nothing is released but the spike.
 *
 *   asked    blocks   rounded to 16   base class   what becomes of it
 *     600     2,000             608          640   a spike, all freed before the rest; earned
 *   4,360       300           4,368        4,608   earned
 *     300     3,000             304          320   earned
 *     500     1,000             512          512   a class already
 *     264       500             272          288   8,000 bytes of slop: too little
 *  30,000       200          30,000       30,720   two share 15 pages either way: saves nothing
 * 100,000         5               -      102,400   large: whole pages
 *
 * 7,005 acquisitions, 2,000 releases. At the end, which is the peak, in bytes:
 *   asked for  300*4,360 + 3,000*300 + 1,000*500 + 500*264 + 200*30,000 + 5*100,000 = 9,340,000
 *   slop       300*248 + 3,000*20 + 1,000*12 + 500*24 + 200*720 + 5*2,400           =   314,400
 *   after      300*8 + 3,000*4 + 1,000*12 + 500*24 + 200*720 + 5*2,400              =   194,400
 */
#include "check.h"

NOINLINE static void keep(int blocks, size_t size)
{
    for (int i = 0; i < blocks; i++)
        must_malloc(size);
}

NOINLINE static void spike(int blocks, size_t size)
{
    static void *held[2000];
    for (int i = 0; i < blocks; i++)
        held[i] = must_malloc(size);
    for (int i = 0; i < blocks; i++)
        free(held[i]);
}

int main(void)
{
    spike(2000, 600);
    keep(300, 4360);
    keep(3000, 300);
    keep(1000, 500);
    keep(500, 264);
    keep(200, 30000);
    keep(5, 100000);
    say("fitted: 5005 kept, 2000 freed\n");
    return 0;
}
