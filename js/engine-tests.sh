#!/bin/sh
# engine-tests.sh [FILTER]   runs the tests that boa_engine's package carries, on Boa's own heap and on ours, and
#                            compares test by test. What fails on both is Boa's matter; what differs is ours, and
#                            the exit status is then 1. HEAPS=skinflint runs ours alone.
#
# The package is the one that cargo has fetched for the host; it is copied into target/, never changed in place. In the
# copy, development dependencies that no library test uses are taken out: benchmarks' ones, and one that puts
# hooks into the git folder above it.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
package=$(cargo metadata --locked --format-version 1 --manifest-path js/stock/Cargo.toml |
    python3 -c "import json, os, sys; print(next(os.path.dirname(p['manifest_path']) for p in json.load(sys.stdin)['packages'] if p['name'] == 'boa_engine'))")
work=$root/target/js-engine
mkdir -p "$work"
status=0
for heap in ${HEAPS:-stock skinflint}; do
    copy=$work/$heap
    rm -rf "$copy"
    cp -r "$package" "$copy"
    chmod -R u+w "$copy"
    rm -f "$copy/Cargo.toml.orig"
    cp "js/$heap/Cargo.lock" "$copy/Cargo.lock"
    python3 - "$copy/Cargo.toml" "$root" $heap <<'PY'
import re, sys
path, root, heap = sys.argv[1:]
sections = re.split(r"(?m)^(?=\[)", open(path).read())
out = ("criterion", "husky-rs", "jemallocator")
kept = [s for s in sections if not s.startswith("[[bench]]") and not any(f"dev-dependencies.{name}]" in s for name in out)]
kept.append("\n[workspace]\n\n[profile.dev]\ndebug = 0\nopt-level = 0\n")
if heap == "skinflint":
    kept.append(f'\n[patch.crates-io]\nboa_gc = {{ path = "{root}/shims/boa_gc" }}\n')
open(path, "w").write("".join(kept))
PY
    echo "== boa_engine's own tests on the heap: $heap"
    (cd "$copy" && timeout "${LIMIT_S:-1500}" cargo test --lib --target-dir "$work/build" -- "$@" >"$work/$heap.log" 2>&1) || true
    grep -E '^test result' "$work/$heap.log" || { tail -20 "$work/$heap.log"; status=1; }
    sed -n 's/^test \(.*\) \.\.\. \(.*\)$/\1 \2/p' "$work/$heap.log" | sort >"$work/$heap.results"
done
[ -n "${HEAPS:-}" ] && exit $status
echo "== different on our heap"
if ! diff "$work/stock.results" "$work/skinflint.results"; then status=1; else echo "nothing"; fi
exit $status
