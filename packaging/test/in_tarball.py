"""The tarball, unpacked in a home by somebody who is not root: the demo, the reporters, and nothing left when it is removed.

Not here: the tree that it is made of (`make install`).
"""

from test import places

SCRIPT = r"""
tar -xf "$GIVEN"/skinflint-*-x86_64-linux.tar.xz
export PATH="$HOME/$(echo skinflint-*-x86_64-linux)/bin:$PATH"
sh "$GIVEN/demo.sh" "$GIVEN/demo.sql"
PYTHONPATH="$(dirname "$(dirname "$(command -v skinflint)")")/lib/skinflint" /usr/bin/python3 -B "$GIVEN/reporters.py"
man -l "$(dirname "$(dirname "$(command -v skinflint)")")/share/man/man1/skinflint.1" | grep -q skinflint
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
    given = [places.package(dist, "-x86_64-linux.tar.xz"), *places.own(dist, "demo.sh", "reporters.py")]
    yield from places.as_nobody(dist, SCRIPT, given).splitlines()
