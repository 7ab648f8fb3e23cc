// Fixed work of the suite's seven programs: WORK is [[benchmark, runs], …]; what it took is processor time (--clock cpu).
// The harness resets its random numbers before each, and a program that computes something wrong throws.
(function () {
  const suites = BenchmarkSuite.suites;
  for (const [name, runs] of WORK) {
    const benchmark = suites.flatMap(suite => suite.benchmarks).find(b => b.name === name);
    if (!benchmark) throw new Error('no benchmark called ' + name);
    BenchmarkSuite.ResetRNG();
    benchmark.Setup();
    const start = performance.now();
    for (let i = 0; i < runs; i++) benchmark.run();
    const ms = performance.now() - start;
    benchmark.TearDown();
    console.log('work ' + name + ' ' + runs + ' ' + ms.toFixed(3));
  }
})();
