#!/bin/sh
# engine-tests.sh [FILTER]   runs the tests that boa_engine's package carries on our heap, and on Boa's own for
#                            comparison; prints both counts. What fails on both is Boa's matter; what fails on ours
#                            alone is a fault, and the exit status is 1.
#
# The package is the one that cargo has fetched for the host; it is copied into target/, never changed in place.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
version=0.22.0
cargo fetch --locked --manifest-path js/stock/Cargo.toml
package=$(cargo metadata --locked --format-version 1 --manifest-path js/stock/Cargo.toml |
    python3 -c "import json, os, sys; print(next(os.path.dirname(p['manifest_path']) for p in json.load(sys.stdin)['packages'] if p['name'] == 'boa_engine'))")
work=$root/target/js-engine
mkdir -p "$work"
status=0
for heap in stock skinflint; do
    copy=$work/$heap
    rm -rf "$copy"
    cp -r "$package" "$copy"
    chmod -R u+w "$copy"
    rm -f "$copy/Cargo.lock" "$copy/Cargo.toml.orig"
    # A workspace of its own; benches and examples are not needed, nor is what only they use.
    printf '\n[workspace]\n\n[profile.dev]\ndebug = 0\nopt-level = 1\n' >>"$copy/Cargo.toml"
    [ $heap = stock ] || printf '\n[patch.crates-io]\nboa_gc = { path = "%s/shims/boa_gc" }\n' "$root" >>"$copy/Cargo.toml"
    echo "== boa_engine $version on the heap: $heap"
    (cd "$copy" && timeout 1500 cargo test --lib --target-dir "$work/build" -- "$@" >"$work/$heap.log" 2>&1) || true
    grep -E '^test result' "$work/$heap.log" || { tail -20 "$work/$heap.log"; status=1; }
    sed -n 's/^test \(.*\) \.\.\. \(.*\)$/\1 \2/p' "$work/$heap.log" | sort >"$work/$heap.results"
done
echo "== different on our heap"
if ! diff "$work/stock.results" "$work/skinflint.results"; then status=1; else echo "nothing"; fi
exit $status
