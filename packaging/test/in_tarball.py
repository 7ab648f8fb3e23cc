"""The tarball, unpacked in a home by somebody who is not root: demo, reporters, a linked program; nothing is left when it is removed.

Not here: the tree that it is made of (`make install`).
"""

from test import places

SCRIPT = r"""
tar -xf "$GIVEN"/skinflint-*-x86_64-linux.tar.xz
export PATH="$HOME/$(echo skinflint-*-x86_64-linux)/bin:$PATH"
sh "$GIVEN/demo.sh" "$GIVEN/demo.sql"
folder="$(dirname "$(dirname "$(command -v skinflint)")")"
PYTHONPATH="$folder/lib/skinflint" /usr/bin/python3 -B "$GIVEN/reporters.py"
FLAGS="-I$folder/include" sh "$GIVEN/gtest.sh"
cc "$GIVEN/example.c" -o engines $(PKG_CONFIG_PATH="$folder/lib/pkgconfig" pkg-config --cflags --libs skinflint-engines)
./engines > said && grep -qx 'users: 3 ended, 2 in a circle; bob is gone' said
rm engines said
man -l "$folder/share/man/man1/skinflint.1" | grep -q skinflint
# A single file, copied away from its libraries, lays them out for itself.
mkdir alone && cp "$(command -v skinflint)" alone
rm -r skinflint-*
PATH="$HOME/alone:/usr/bin:/bin" sh "$GIVEN/demo.sh" "$GIVEN/demo.sql"
rm -r alone .cache/skinflint
rmdir .cache
test -z "$(ls -A)"
echo "unpacked, copied as one file, and removed without a rest"
"""


def test(dist):
    given = [places.package(dist, "-x86_64-linux.tar.xz"), *places.own(dist, "demo.sh", "reporters.py"), *places.development(dist), *places.suite(dist)]
    yield from places.as_nobody(dist, SCRIPT, given).splitlines()
