"""Skinflint for Python: the program `skinflint`, reporters (`skinflint_report`), and a pytest plugin (`pytest_plugin`).

    skinflint.program()     the program: installed with this package, else what PATH has
    skinflint.library()     the allocator's library, for LD_PRELOAD; `skinflint exec` needs it not

PYTEST_DONT_REWRITE: what pytest makes of this file would be left when the package is removed.

Not here: what they do (README, `skinflint --help`).
"""

import os
import shutil
import sysconfig

__all__ = ["program", "library"]


def program():
    """The path of `skinflint`; None if it is not there."""
    beside = os.path.join(sysconfig.get_path("scripts"), "skinflint")
    return beside if os.path.exists(beside) else shutil.which("skinflint")


def library():
    """The path of the allocator's library, libskinflint.so."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libskinflint.so")
