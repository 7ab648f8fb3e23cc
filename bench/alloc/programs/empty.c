/* empty: a library that holds nothing. What it costs to preload it is what any preloaded allocator costs at least. */
int skinflint_bench_empty;
