#!/bin/sh
# demo.sh SQL   The demo, as somebody does it who has installed a package: sqlite3 at real work is recorded, and the
#               screen has its books. `skinflint` is what PATH says. Prints the screen's first line.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
skinflint record -o sqlite3.sft -- sqlite3 demo.db < "$1" > answers.txt 2> said.txt || { cat said.txt; exit 1; }
skinflint report sqlite3.sft --html sqlite3.html > screen.txt 2> said.txt || { cat said.txt; exit 1; }
test -s sqlite3.html
for line in '^complete: .* none lost' '^Resident memory (at|near) its peak' '  live blocks ' '  = resident .*100.0%' \
    '^(Who holds it|Through whom)' 'sqlite3'; do
    grep -Eq -- "$line" screen.txt || { echo "not on the screen: $line"; cat screen.txt; exit 1; }
done
# Its sorting takes 200,000 blocks that live briefly. Whether that is worth a line of advice depends on the CPU that all of it
# took; that they were counted does not.
tr '\n' ' ' < screen.txt | grep -Eq '[0-9]{3},[0-9]{3} temporaries' || { echo "200,000 temporaries are not on the screen"; cat screen.txt; exit 1; }
# The allocator is under a program that says nothing of it.
skinflint exec -- grep -q 'libskinflint\.so' /proc/self/maps
echo "  $(head -n 1 screen.txt)"
