"""pytest: memory as a test.

    @pytest.mark.skinflint(peak_live="64MiB", allocations="2M")
    def test_load(): ...

    @pytest.mark.skinflint(growth="4KiB", rounds=5)
    def test_request(): ...                      # what a call leaves behind, the first one aside

    pytest ─► `skinflint check LIMITS -- python -m pytest NODEID` ─► 0 held · 3 broken · 4 not decided · 1 failed
                                                └─► the test itself, as ever; with growth: mark, test, mark, test, …

Q1  A marked test runs in a process of its own: figures are of the interpreter, pytest, its fixtures and the test, and of
    no test that ran before. So limits are best told against a baseline, or as growth, which the rest has no part in.
Q2  What is not decided fails: a limit that nothing was held to is no limit.
Q3  Blocks are malloc's (PYTHONMALLOC=malloc): Python's own arenas would hide what a test leaves behind. Hash seeds are
    fixed (PYTHONHASHSEED=0), so that the same test allocates the same.
Q4  Limits are those of `skinflint check`, with `_` for `-`; an unknown one is an error when tests are collected.

Not here: figures and limits (docs/check.md).
"""

import ctypes
import os
import subprocess
import sys

import pytest

from skinflint import paths

LIMITS = [
    "peak_live", "peak_blocks", "peak_slop", "peak_rss", "live_at_end", "blocks_at_end", "slop_at_end", "pinned_at_end",
    "allocations", "bytes_read", "bytes_written",
]
FILES = ["baseline", "budgets"]
_INSIDE = "SKINFLINT_PYTEST_INSIDE"
_MARK = "test"


def pytest_addoption(parser):
    group = parser.getgroup("skinflint")
    group.addoption("--no-skinflint", action="store_true", help="run marked tests as any other, without limits of memory")


def pytest_configure(config):
    config.addinivalue_line("markers", "skinflint(peak_live=…, growth=…, rounds=…): holds the test's process to limits of memory")


def _words(marker):
    """The options of `skinflint check` that a mark asks for."""
    words = []
    for name, value in marker.kwargs.items():
        if name in LIMITS or name in FILES:
            words.append(f"--{name.replace('_', '-')}={value}")
        elif name == "stack":
            words += [f"--stack={pattern}={limit}" for pattern, limit in value.items()]
        elif name == "growth":
            words.append(f"--growth-per={_MARK}={value}")
        elif name != "rounds":
            known = ", ".join([*LIMITS, *FILES, "stack", "growth", "rounds"])
            raise ValueError(f"no limit is called {name}; there are {known}")
    if not words:
        raise ValueError("a mark without a limit holds nothing")
    return words


def pytest_collection_modifyitems(items):
    for item in items:
        marker = item.get_closest_marker("skinflint")
        if marker:
            try:
                _words(marker)
            except ValueError as error:
                raise pytest.UsageError(f"skinflint: {item.nodeid}: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """Runs a marked test in a process of its own; others, and the test inside, go their way."""
    marker = item.get_closest_marker("skinflint")
    if marker is None or os.environ.get(_INSIDE) or item.config.getoption("--no-skinflint"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    call = pytest.CallInfo.from_call(lambda: _held(item, marker), "call")
    report = pytest.TestReport.from_item_and_call(item, call)
    item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _held(item, marker):
    program = paths.program()
    if program is None:
        pytest.fail("the program skinflint is not there: pip install skinflint", pytrace=False)
    inside = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(item.config.rootpath), item.nodeid]
    environment = dict(os.environ, PYTHONMALLOC="malloc", PYTHONHASHSEED="0")
    environment[_INSIDE] = "1"
    command = [program, "check", *_words(marker), "--", *inside]
    ended = subprocess.run(command, env=environment, cwd=item.config.rootpath, capture_output=True, text=True, check=False)
    if ended.returncode:
        pytest.fail(f"{ended.stderr}{ended.stdout}", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Inside: a test whose growth is limited is called once more than its rounds, between marks."""
    marker = pyfuncitem.get_closest_marker("skinflint")
    if marker is None or not os.environ.get(_INSIDE) or "growth" not in marker.kwargs:
        return None
    try:
        mark = ctypes.CDLL(None).skinflint_mark
    except AttributeError:
        pytest.fail("the test's process is not recorded", pytrace=False)
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for _ in range(int(marker.kwargs.get("rounds", 5)) + 1):
        mark(_MARK.encode())
        pyfuncitem.obj(**arguments)
    mark(_MARK.encode())
    return True
