"""Reporters of memory for programs in Python: what `skinflint memory` and Firefox's about:memory show.

    import skinflint_report

    @skinflint_report.reporter("images")
    def images(out):
        out.heap("explicit/caches/images", sum(len(image) for image in cache), "Decoded images.")

    skinflint_report.open()               # `skinflint memory PID` shows it from now on
    skinflint_report.save("now.json.gz")  # about:memory opens it

P1  A reporter that raises is left out and named; the others are shown.
P2  It runs on a thread of the measurement's and takes the interpreter's lock: one that waits for a thread which
    holds that lock is given up after two seconds.
P3  Nobody can ask any more once the interpreter ends: a reporter that was called then would find none. What is under
    way then is waited for, ten seconds at most.
P4  The library is found beside `skinflint`, by SKINFLINT_REPORT_LIBRARY, or where the loader looks.

Not here: what a line means (include/skinflint_report.h).
"""

import atexit
import ctypes
import os
import shutil

NONHEAP, HEAP, OTHER = 0, 1, 2
BYTES, COUNT, CUMULATIVE, PERCENTAGE = 0, 1, 2, 3

_NAME = "libskinflint_report.so"


def _load():
    named = os.environ.get("SKINFLINT_REPORT_LIBRARY")
    if named:
        return ctypes.CDLL(named)
    tool = shutil.which("skinflint")
    if tool:
        folder = os.path.dirname(os.path.realpath(tool))
        for place in (folder, os.path.join(folder, "..", "lib", "skinflint")):
            path = os.path.join(place, _NAME)
            if os.path.exists(path):
                return ctypes.CDLL(path)
    return ctypes.CDLL(_NAME)


_library = _load()
_Reporter = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_Deed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_library.skinflint_report_error.restype = ctypes.c_char_p
_library.skinflint_reporter_add.restype = ctypes.c_ulong
_library.skinflint_reporter_add.argtypes = [ctypes.c_char_p, _Reporter, ctypes.c_void_p]
_library.skinflint_action_add.restype = ctypes.c_ulong
_library.skinflint_action_add.argtypes = [ctypes.c_char_p, ctypes.c_char_p, _Deed, ctypes.c_void_p]
_library.skinflint_reporter_remove.argtypes = [ctypes.c_ulong]
_library.skinflint_report_line.argtypes = [
    ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_char_p,
]
_library.skinflint_report_inside.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_library.skinflint_report_inside.restype = None
_library.skinflint_report_range.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_library.skinflint_report_range.restype = None
_library.skinflint_report_wants_blocks.argtypes = [ctypes.c_void_p]
_library.skinflint_report_fail.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_library.skinflint_report_fail.restype = None
_library.skinflint_memory_open.argtypes = [ctypes.c_char_p]
_library.skinflint_memory_close.restype = None
_library.skinflint_memory_save.argtypes = [ctypes.c_char_p]

# Functions that C calls must live as long as it may call them.
_kept = {}


def _text(text):
    return str(text).replace("\0", " ").encode("utf-8", "replace")


def _error():
    return (_library.skinflint_report_error() or b"").decode("utf-8", "replace")


def component(name):
    """A name as one component of a path."""
    clean = "".join(" " if ord(c) < 32 else c for c in str(name)).replace("/", "\\")
    return clean or "(no name)"


class Out:
    """Where a reporter's lines go; good until it returns. Used later, it raises ValueError."""

    def __init__(self, handle):
        self._good = handle

    @property
    def _handle(self):
        if self._good is None:
            raise ValueError("its reporter has returned: an Out is good until then")
        return self._good

    def line(self, path, kind, units, amount, description, process=None):
        """Adds a line; False: the reporter is left out and may as well return."""
        amount = int(amount)
        if not -(1 << 63) <= amount < 1 << 63:
            raise OverflowError(f"{path}: {amount} is no amount")
        who = None if process is None else _text(process)
        return _library.skinflint_report_line(
            self._handle, who, _text(path), kind, units, amount, _text(description)) == 1

    def heap(self, path, amount, description, blocks=(), ranges=()):
        """Bytes in blocks of malloc. For `skinflint run --dark-matter`: `blocks` are addresses, one in each block that
        was measured, such as id() of a large bytes object; `ranges` are pairs of an address and bytes. They are looked
        at only if wants_blocks(). Objects of 512 bytes and less are in Python's own arenas, which are no blocks of
        malloc's unless PYTHONMALLOC=malloc.
        """
        if self.wants_blocks():
            for address in blocks:
                _library.skinflint_report_inside(self._handle, address, 0)
            for address, size in ranges:
                _library.skinflint_report_range(self._handle, address, size)
        return self.line(path, HEAP, BYTES, amount, description)

    def wants_blocks(self):
        """Whether somebody asks which blocks were measured."""
        return _library.skinflint_report_wants_blocks(self._handle) == 1

    def nonheap(self, path, amount, description):
        """Bytes mapped otherwise."""
        return self.line(path, NONHEAP, BYTES, amount, description)

    def count(self, path, amount, description):
        """How many there are."""
        return self.line(path, OTHER, COUNT, amount, description)


def add(name, function):
    """Adds a reporter; returns its number for remove()."""
    def call(_context, handle):
        out = Out(handle)
        try:
            function(out)
        except BaseException as error:  # P1: nothing may pass into C
            _library.skinflint_report_fail(handle, _text(f"{type(error).__name__}: {error}"))
        finally:
            out._good = None

    called = _Reporter(call)
    number = _library.skinflint_reporter_add(_text(name), called, None)
    if number == 0:
        raise OSError(_error())
    _kept[number] = called
    return number


def reporter(name):
    """Decorates a function that takes an Out."""
    def decorate(function):
        add(name, function)
        return function
    return decorate


def on(action, name, function):
    """Has function() called for "minimize", "gc" or "cc"; what it returns is shown to the user."""
    def call(_context, said, room):
        try:
            text = _text(function())[: room - 1]
        except BaseException as error:
            text = _text(f"{type(error).__name__}: {error}")[: room - 1]
        ctypes.memmove(said, text + b"\0", len(text) + 1)

    called = _Deed(call)
    number = _library.skinflint_action_add(_text(action), _text(name), called, None)
    if number == 0:
        raise ValueError(_error())
    _kept[number] = called
    return number


def remove(number):
    """Removes a reporter or an action."""
    done = _library.skinflint_reporter_remove(number)
    if done < 0:
        raise KeyError(_error())
    # One that still runs keeps its function.
    if done == 1:
        _kept.pop(number, None)
    return done == 1


def open(folder=None):
    """Lets `skinflint memory` of the same user ask."""
    if _library.skinflint_memory_open(None if folder is None else os.fsencode(folder)) != 1:
        raise OSError(_error())


def close():
    """Nobody can ask any more; waits for reporters and actions that run, ten seconds at most."""
    _library.skinflint_memory_close()


atexit.register(close)


def save(path):
    """Measures, and writes a file of about:memory. Returns what was left out, in words; empty if nothing was."""
    done = _library.skinflint_memory_save(os.fsencode(path))
    if done < 0:
        raise OSError(_error())
    return _error() if done else ""
