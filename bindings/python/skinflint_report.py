"""Reporters of memory for programs in Python: what `skinflint memory` and Firefox's about:memory show.

    import skinflint_report

    @skinflint_report.reporter("images")
    def images(out):
        out.objects("explicit/caches/images", cache, "Decoded images.")

    skinflint_report.open()               # `skinflint memory PID` shows it from now on
    skinflint_report.save("now.json.gz")  # about:memory opens it

P1  A reporter that raises is left out and named; the others are shown.
P2  It runs on a thread of the measurement's and takes the interpreter's lock: one that waits for a thread which
    holds that lock is given up after two seconds.
P3  No request is answered once the interpreter ends: a reporter that was called then would find none. What is under
    way then is waited for, ten seconds at most.
P4  Where an object's bytes lie is told by size(): Python keeps blocks of 512 bytes and less in arenas that it maps
    (pymalloc), which are no blocks of malloc's. What objects() leaves over of these arenas is in rows below
    explicit/python/pymalloc, so that they add up.
P5  The library is found by SKINFLINT_REPORT_LIBRARY, beside this file, in skinflint/lib beside it (a wheel), beside
    `skinflint`, or where the loader looks.

Not here: what a line means (include/skinflint_report.h).
"""

import atexit
import collections
import ctypes
import os
import re
import shutil
import sys
import sysconfig
import threading

NONHEAP, HEAP, OTHER = 0, 1, 2
BYTES, COUNT, CUMULATIVE, PERCENTAGE = 0, 1, 2, 3

_NAME = "libskinflint_report.so"


def _load():
    named = os.environ.get("SKINFLINT_REPORT_LIBRARY")
    if named:
        return ctypes.CDLL(named)
    # Installed, both are in one folder; or this file comes out of a wheel.
    own = os.path.dirname(os.path.realpath(__file__))
    for beside in (os.path.join(own, _NAME), os.path.join(own, "skinflint", "lib", _NAME)):
        if os.path.exists(beside):
            return ctypes.CDLL(beside)
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


Size = collections.namedtuple("Size", "heap pymalloc")
Size.__doc__ = "Bytes in blocks of malloc, and bytes in arenas of pymalloc."

# Largest block that pymalloc serves, and the steps of its sizes (Objects/obmalloc.c).
_SMALL = 512
_STEP = 16
# What stands before an object that the collector of cycles knows.
_GC_HEAD = 16
# Types whose contents are in a block of their own, which sys.getsizeof adds.
_TWO_BLOCKS = (list, dict, set, bytearray, collections.OrderedDict)


def has_pymalloc():
    """Whether small objects are in arenas of Python's: not with PYTHONMALLOC=malloc, nor in a build without."""
    if os.environ.get("PYTHONMALLOC", "").startswith("malloc") and not sys.flags.ignore_environment:
        return False
    return bool(sysconfig.get_config_var("WITH_PYMALLOC")) and not sysconfig.get_config_var("Py_GIL_DISABLED")


_pymalloc = has_pymalloc()


def size(*objects):
    """Where the bytes of these objects lie, without what they refer to: a Size of bytes in blocks of malloc and bytes in
    arenas of pymalloc. As sys.getsizeof says, which does not know what malloc adds; the contents of a list, dict, set
    and bytearray are a block of their own. O(1) each."""
    heap = pymalloc = 0
    for one in objects:
        for block in _blocks(one):
            if _is_small(block):
                pymalloc += -(-block // _STEP) * _STEP
            else:
                heap += block
    return Size(heap, pymalloc)


def _blocks(one):
    """Bytes of an object's blocks; the first one is at its address."""
    total = sys.getsizeof(one)
    if not isinstance(one, _TWO_BLOCKS):
        return (total,)
    head = type(one).__basicsize__ + (_GC_HEAD if type(one).__flags__ & (1 << 14) else 0)
    return (head, max(total - head, 0))


def _is_small(block):
    return _pymalloc and block <= _SMALL


class _Claims:
    """What reporters have claimed of pymalloc's arenas in this measurement."""

    def __init__(self):
        self.lock = threading.Lock()
        self.adding = threading.Lock()
        self.bytes = 0
        self.number = 0


_claims = _Claims()


def _arenas_text():
    """What sys._debugmallocstats would write to stderr, which is the program's: the function below it writes to any file
    of C's, here to one in memory. Empty if this Python does not have it."""
    tell = getattr(ctypes.pythonapi, "_PyObject_DebugMallocStats", None)
    if tell is None:
        return ""
    libc = ctypes.PyDLL(None)  # does not let go of the interpreter's lock, which guards the arenas
    libc.open_memstream.restype = ctypes.c_void_p
    text, length = ctypes.c_void_p(), ctypes.c_size_t()
    file = libc.open_memstream(ctypes.byref(text), ctypes.byref(length))
    if not file:
        return ""
    try:
        tell(ctypes.c_void_p(file))
    finally:
        libc.fclose(ctypes.c_void_p(file))
    try:
        return ctypes.string_at(text, length.value).decode("ascii", "replace")
    finally:
        libc.free(text)


def pymalloc_bytes():
    """Bytes of pymalloc's arenas: (all of them, in blocks that are allocated). (0, 0) if there are none. Cost: a walk over
    all pools with the interpreter's lock held, 0.2 ms for 12 MB (2026-11-22)."""
    if not _pymalloc:
        return (0, 0)
    text = _arenas_text()
    arenas = re.search(r"^\d+ arenas \* \d+ bytes/arena\s*=\s*([\d,]+)", text, re.M)
    used = re.search(r"^# bytes in allocated blocks\s*=\s*([\d,]+)", text, re.M)
    if not arenas or not used:
        return (0, 0)
    return tuple(int(found[1].replace(",", "")) for found in (arenas, used))


def _report_pymalloc(out):
    with _claims.lock:
        claimed, _claims.bytes = _claims.bytes, 0
    arenas, used = pymalloc_bytes()
    if not arenas:
        return
    # What is claimed cannot be more than there is: objects were counted twice, or went meanwhile.
    claimed = min(claimed, used)
    out.nonheap("explicit/python/pymalloc/unclassified", used - claimed,
                "Small objects of Python that no reporter has claimed by objects().")
    out.nonheap("explicit/python/pymalloc/free", arenas - used,
                "Free blocks and pools of Python's arenas, their heads and rests.")


class Out:
    """Where a reporter's lines go; good until it returns. Used later, it raises ValueError."""

    def __init__(self, handle):
        self._good = handle
        self._claimed = 0
        self._left_out = False

    @property
    def _handle(self):
        if self._good is None:
            raise ValueError("its reporter has returned: an Out is good until then")
        return self._good

    def objects(self, path, objects, description):
        """Adds lines for these objects, without what they refer to: what is in blocks of malloc as heap, at this path
        (explicit/...), and what is in pymalloc's arenas below explicit/python/pymalloc (P4)."""
        objects = tuple(objects)
        found = size(*objects)
        large = ()
        if self.wants_blocks():
            # Where the contents of a list or a table lie, Python does not say.
            large = [id(one) for one in objects if not _is_small(_blocks(one)[0])]
        done = self.heap(path, found.heap, description, blocks=large)
        if found.pymalloc:
            self._claimed += found.pymalloc
            below = "explicit/python/pymalloc/" + path.removeprefix("explicit/")
            done = self.nonheap(below, found.pymalloc, description) and done
        return done

    def line(self, path, kind, units, amount, description, process=None):
        """Adds a line; False: the reporter is left out and may as well return."""
        amount = int(amount)
        if not -(1 << 63) <= amount < 1 << 63:
            raise OverflowError(f"{path}: {amount} is no amount")
        who = None if process is None else _text(process)
        taken = _library.skinflint_report_line(
            self._handle, who, _text(path), kind, units, amount, _text(description)) == 1
        self._left_out = self._left_out or not taken
        return taken

    def heap(self, path, amount, description, blocks=(), ranges=()):
        """Bytes in blocks of malloc. For `skinflint run --dark-matter`: `blocks` are addresses, one in each block that
        was measured, such as id() of a large bytes object; `ranges` are pairs of an address and bytes. They are looked
        at only if wants_blocks(). Objects of 512 bytes and less are in Python's own arenas, which are no blocks of
        malloc's unless PYTHONMALLOC=malloc: objects() tells them apart.
        """
        if self.wants_blocks():
            for address in blocks:
                _library.skinflint_report_inside(self._handle, address, 0)
            for address, size in ranges:
                _library.skinflint_report_range(self._handle, address, size)
        return self.line(path, HEAP, BYTES, amount, description)

    def wants_blocks(self):
        """Whether a request asks which blocks were measured."""
        return _library.skinflint_report_wants_blocks(self._handle) == 1

    def nonheap(self, path, amount, description):
        """Bytes mapped otherwise."""
        return self.line(path, NONHEAP, BYTES, amount, description)

    def count(self, path, amount, description):
        """How many there are."""
        return self.line(path, OTHER, COUNT, amount, description)


def add(name, function):
    """Adds a reporter; returns its number for remove()."""
    number = _add(name, function)
    if _pymalloc and function is not _report_pymalloc:
        # Reporters run in the order in which they came; what is left over is known when all others have run.
        with _claims.adding:
            if _claims.number:
                remove(_claims.number)
            _claims.number = _add("python", _report_pymalloc)
    return number


def _add(name, function):
    def call(_context, handle):
        out = Out(handle)
        try:
            function(out)
            # A reporter that is left out has claimed nothing.
            if not out._left_out:
                with _claims.lock:
                    _claims.bytes += out._claimed
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
    """Closes the socket, and waits for reporters and actions that run, ten seconds at most."""
    _library.skinflint_memory_close()


atexit.register(close)


def save(path):
    """Measures, and writes a file of about:memory. Returns what was left out, in words; empty if nothing was."""
    done = _library.skinflint_memory_save(os.fsencode(path))
    if done < 0:
        raise OSError(_error())
    return _error() if done else ""
