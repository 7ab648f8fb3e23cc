#!/bin/sh
# gtest.sh   A suite of GoogleTest with budgets, compiled with the installed skinflint_gtest.h: its tests run as ever without the
#            recorder, and are held to what they say by `skinflint check`. FLAGS: where the header lies, if not where it is
#            looked for. Needs cache_test.cpp beside it, g++ and libgtest-dev.
set -eu
given=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# shellcheck disable=SC2086 # flags are words
g++ -std=c++14 -O1 ${FLAGS:-} "$given/cache_test.cpp" -o tests -lgtest_main -lgtest -pthread
./tests > said.txt || { cat said.txt; exit 1; }
skinflint check --marked-budgets -- ./tests > said.txt 2>&1 || { cat said.txt; exit 1; }
grep -q 'held .*phase Cache.Forgets allocations' said.txt || { cat said.txt; exit 1; }
if LEAK=1 skinflint check --marked-budgets -- ./tests > said.txt 2>&1; then cat said.txt; exit 1; fi
grep -q 'broken .*phase Cache.Forgets' said.txt || { cat said.txt; exit 1; }
# As cargo calls it; what it needs beyond that is cargo.
cargo-skinflint skinflint test --help | grep -q 'cargo skinflint test' || exit 1
echo "  GoogleTest by the installed header: budgets held, and one broken by a leak"
