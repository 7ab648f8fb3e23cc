/* A library that is no allocator. */
int nothing(void);
int nothing(void) { return 0; }
