/* Numbers that look random and are the same in every run (splitmix64), and the recorder's marks. */
#ifndef DICE_H
#define DICE_H
#include "skinflint.h"
static unsigned long long dice_state = 20;
static inline unsigned roll(unsigned faces)
{
    unsigned long long z = dice_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (unsigned)((z ^ (z >> 31)) >> 32) % faces;
}
#endif
