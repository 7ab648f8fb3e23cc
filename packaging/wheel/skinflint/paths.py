"""Where this wheel has put what it brought.

    paths.program()     the program: installed with this package, else what PATH has
    paths.library()     the allocator's library, for LD_PRELOAD; `skinflint exec` needs it not

F1  `skinflint` has no __init__.py. pytest compiles every package of a distribution with a plugin anew, into files that pip
    does not know (name.cpython-311-pytest-9.2.0.pyc), and a removal would leave them. A folder without one it leaves alone.

Not here: what program and library do (README, `skinflint --help`).
"""

import os
import shutil
import sysconfig


def program():
    """The path of `skinflint`; None if it is not there."""
    beside = os.path.join(sysconfig.get_path("scripts"), "skinflint")
    return beside if os.path.exists(beside) else shutil.which("skinflint")


def library():
    """The path of the allocator's library, libskinflint.so."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libskinflint.so")
