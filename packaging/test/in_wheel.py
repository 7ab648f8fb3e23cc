"""The wheel in a fresh virtual environment of nobody's, and by auditwheel.

    auditwheel show ─► manylinux_2_28       pip install ─► demo.sh, reporters.py, memory_test.py ─► pip uninstall ─► before == after

Not here: that the same program runs on an old glibc (in_deb.py).
"""

import os
import re

from test import places

SCRIPT = r"""
/usr/bin/python3 -m venv venv
. venv/bin/activate
pip install --quiet --disable-pip-version-check pytest
find venv -name __pycache__ -prune -o -print | sort > before
# In one line.
pip install --quiet --no-index "$GIVEN"/skinflint-*.whl
sh "$GIVEN/demo.sh" "$GIVEN/demo.sql"
python -B "$GIVEN/reporters.py"
python -m skinflint --version
LD_PRELOAD=$(python -c 'from skinflint import paths; print(paths.library())') grep -q 'libskinflint\.so' /proc/self/maps
cp "$GIVEN/memory_test.py" test_memory.py
pytest -q -p no:cacheprovider test_memory.py > pytest.txt || test $? -eq 1
grep -E '^(FAILED|ERROR) [^ ]' pytest.txt | sed 's/ - .*//' | sort -u > failed
printf 'FAILED test_memory.py::%s\n' test_fails_by_itself test_is_too_large test_leaves_something_behind | diff - failed || { cat pytest.txt; exit 1; }
grep '3 failed, 3 passed' pytest.txt
grep -q 'BROKEN' pytest.txt
grep 'broken .*test' pytest.txt | head -n 2
pytest -q -p no:cacheprovider --no-skinflint test_memory.py | grep '1 failed, 5 passed'
printf 'import pytest\n@pytest.mark.skinflint(peak_life="1MiB")\ndef test_x(): pass\n' > test_wrong.py
pytest -q -p no:cacheprovider test_wrong.py > wrong.txt 2>&1 && exit 1
grep 'test_wrong.py::test_x: no limit is called peak_life' wrong.txt | cut -c 1-60
pip uninstall --quiet --yes skinflint
find venv -name __pycache__ -prune -o -print | sort > after
diff before after
# What Python and pytest have compiled, too.
left=$(find venv -path '*skinflint*' -print)
test -z "$left" || { echo "$left"; exit 1; }
echo "removed without a rest"
"""

# How pip reaches packages from here; nothing of this is in a file of ours.
PIP = ["PIP_INDEX_URL", "PIP_CERT", "PIP_FIND_LINKS", "PIP_DEFAULT_TIMEOUT", "HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"]


def test(dist):
    wheel = places.package(dist, ".whl")
    shown = dist.said(os.path.join(dist.tools("tools", "requirements.txt"), "auditwheel"), "show", wheel)
    tag = re.search(r'platform tag: "manylinux_2_(\d+)_x86_64"', " ".join(shown.split()))
    assert tag and int(tag[1]) <= 28, shown
    yield f"auditwheel: {tag[0]}"
    given = [wheel, *places.own(dist, "demo.sh", "reporters.py", "memory_test.py")]
    yield from places.as_nobody(dist, SCRIPT, given, PIP).splitlines()
