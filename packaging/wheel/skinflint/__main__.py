"""`python -m skinflint`: the program, in this process's place, where scripts of packages are not in PATH."""

import os
import sys

from skinflint import paths

path = paths.program()
if path is None:
    sys.exit("skinflint: the program is neither with this Python's scripts nor in PATH")
os.execv(path, [path, *sys.argv[1:]])
