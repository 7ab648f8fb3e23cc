/* A seeded source of numbers, so that every run is the same. */
#ifndef SEEDED_H
#define SEEDED_H
static unsigned long long seeded_state = 88172645463325252ull;
static inline unsigned seeded(unsigned below)
{
    seeded_state ^= seeded_state << 13;
    seeded_state ^= seeded_state >> 7;
    seeded_state ^= seeded_state << 17;
    return (unsigned)(seeded_state >> 24) % below;
}
#endif
