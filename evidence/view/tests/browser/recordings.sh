#!/bin/sh
# recordings.sh SKINFLINT FOLDER   what the checks of the page look at: two programs, recorded for real
#
#   marks   tests/programs/marks.c: every block predicted, twelve marks
#   churn   bench/churn.c: ten million events from 256 call chains, in a thousand sizes
#
# A recording that is there is used again; pages and JSON are made anew, they are what is tested.
set -eu

skinflint=$1
folder=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../../..
mkdir -p "$folder"
out=$(cd "$folder" && pwd)

if [ ! -e "$out/marks.sft" ]; then
    make -s -C "$root/tests/programs" OUT="$out/programs" "$out/programs/marks"
    timeout 60 "$skinflint" record -o "$out/marks.part" -- "$out/programs/marks"
    mv "$out/marks.part" "$out/marks.sft"
fi
if [ ! -e "$out/churn.sft" ]; then
    gcc -O2 -g -o "$out/churn" "$root/bench/churn.c"
    timeout 600 "$skinflint" record -o "$out/churn.part" -- "$out/churn" 10000000
    mv "$out/churn.part" "$out/churn.sft"
fi
for name in marks churn; do
    timeout 600 "$skinflint" report "$out/$name.sft" --json --windows --html "$out/$name.html" > "$out/$name.json"
done
