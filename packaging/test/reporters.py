"""A program in Python that reports its own memory, asked by `skinflint memory`: the row is there, and adds up."""

import os
import subprocess

import skinflint_report

cache = [bytes(100_000) for _ in range(20)]


@skinflint_report.reporter("images")
def images(out):
    out.objects("explicit/caches/images", cache, "Decoded images.")


skinflint_report.open()
shown = subprocess.run(["skinflint", "memory", str(os.getpid())], capture_output=True, text=True, timeout=60, check=False)
skinflint_report.close()
assert shown.returncode == 0, shown.stderr
assert "images" in shown.stdout, shown.stdout
print("  " + next(line.strip() for line in shown.stdout.splitlines() if "images" in line))
