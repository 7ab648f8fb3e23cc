#!/bin/sh
# Checks the types of the page's scripts, in the order in which html.rs joins them, as one program (tsc --checkJs).
#   sh types.sh TSC
set -e
here=$(cd "$(dirname "$0")" && pwd)
tsc=${1:-$here/node_modules/.bin/tsc}
cd "$here/../../src/page"
scripts=$(sed -n 's/.*include_str!("page\/\([a-z_]*\.js\)").*/\1/p' ../html.rs)
test -n "$scripts"
# shellcheck disable=SC2086 # names without spaces
"$tsc" --allowJs --checkJs --noEmit --target es2022 --lib es2023,dom,dom.iterable $scripts "$here/page.d.ts"
echo "types: $(echo "$scripts" | wc -l) scripts hold"
