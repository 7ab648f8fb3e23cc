"""Records real programs and keeps their page-run requests beside this file, as NAME.runs.

    python3 engines/pages/traces/record.py [NAME…]      (needs `cargo build --release` and the programs)

    bench/workloads.py ──► skinflint record ──► .sft ──► the example runs_of ──► traces/NAME.runs

C1  The programs are those of the other benches, on inputs from the same seed; hash seeds are fixed. Two
    recordings of one program may still differ in a few blocks: the files in the repository are the record.
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
sys.path.insert(0, os.path.join(ROOT, "bench"))

import measure  # noqa: E402 (its folder is known only now)
import workloads  # noqa: E402

NAMES = ("python", "cc1plus", "sqlite", "redis", "perl")


def main():
    bench = measure.Bench(os.path.join(TARGET, "release", "skinflint"), os.path.join(TARGET, "bench"))
    bench.need_skinflint()
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "skinflint-pages", "--example", "runs_of"],
                   cwd=ROOT, check=True)
    for workload in workloads.chosen(sys.argv[1:] or NAMES):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "program.sft")
            measure.run(bench, workload, "skinflint", keep_trace=trace)
            out = os.path.join(HERE, workload.name + ".runs")
            subprocess.run([os.path.join(TARGET, "release", "examples", "runs_of"), trace, out], check=True)


if __name__ == "__main__":
    main()
