"""Tests with marks, as a user of the pytest plugin writes them: which of them fail is what in_wheel.py looks at."""

import pytest

kept = []


@pytest.mark.skinflint(growth="20KiB", rounds=5)
def test_frees_what_it_takes():
    assert len([bytes(1_000) for _ in range(1_000)]) == 1_000


@pytest.mark.skinflint(growth="20KiB", rounds=5)
def test_leaves_something_behind():
    kept.append(bytes(100_000))


@pytest.mark.skinflint(peak_live="400MiB")
def test_is_small_enough():
    assert sum(range(10)) == 45


@pytest.mark.skinflint(peak_live="1MiB")
def test_is_too_large():
    assert len(bytes(50_000_000)) == 50_000_000


@pytest.mark.skinflint(peak_live="400MiB")
def test_fails_by_itself():
    raise AssertionError("of its own")


def test_has_no_limit():
    pass
