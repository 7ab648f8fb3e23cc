#!/bin/sh
# develop.sh   Programs in C, linked by pkg-config alone with what is installed for developers, as docs/install.md has it. They
#              run as they were linked: no variable says where a library is. Needs linked.c, reported.c, example.c beside it.
set -eu
given=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# made NAME FLAGS…   NAME.c, linked: not with what is preloaded, nor by a path of the test's.
made() { source="$given/$1.c" && shift && cc -std=gnu99 -O1 -fno-builtin "$source" "$@"; }

# shellcheck disable=SC2046 # flags are words
made linked -o linked $(pkg-config --cflags --libs skinflint)
test "$(./linked)" = skinflint
made linked -o static $(pkg-config --cflags skinflint) -l:libskinflint.a -lpthread -ldl
test "$(./static)" = skinflint
readelf -d static > needed
if grep libskinflint needed; then exit 1; fi

made reported -o reported $(pkg-config --cflags --libs skinflint_report)
./reported report.json
grep -q 'explicit/pages' report.json

made example -o engines $(pkg-config --cflags --libs skinflint-engines)
./engines > said
grep -qx 'users: 3 ended, 2 in a circle; bob is gone' said
archive=$(pkg-config --variable=libdir skinflint-engines)/libskinflint_engines.a
made example -o engines-static $(pkg-config --cflags skinflint-engines) "$archive" -lpthread -ldl -lm
./engines-static | diff said -
readelf -d engines-static > needed
if grep libskinflint needed; then exit 1; fi
echo "  linked by pkg-config, and with the archives: allocator, reporters, caches and counted values"
