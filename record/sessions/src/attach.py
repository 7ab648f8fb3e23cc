# Runs inside gdb: has a running program load the recorder and begin, or end. Says one line on stdout.
#
#   PID ─ attach ─► a thread that is neither in the allocator nor in the loader ─► dlopen, dlsym, call ─► detach
#
# A thread inside malloc holds its lock: a call from there would wait for ever, or find the heap half changed.
# So stacks are looked at first, and if no thread will do the program runs on for a moment and is stopped again.
# The program stands still from attach to detach; the calls run with all threads going.
#
# Not here: what the calls do (record-so/src/attach.rs), who reads the line (attach.rs).

import json
import os
import re
import time

import gdb

ASKED = json.loads(os.environ["SKINFLINT_ATTACH"])
TRIES = 200
FRAMES = 200

# Functions that allocate, or are of the loader; and libraries all of whose code is an allocator's or the loader's.
UNFIT = re.compile(
    r"^(_*(GI_+|libc_)*(malloc|calloc|realloc|reallocarray|free|memalign|aligned_alloc|posix_memalign|valloc|pvalloc"
    r"|cfree|mallinfo2?|malloc_\w+|fork|vfork|clone\d?|dl\w+)(@plt)?"
    r"|_int_\w+|sysmalloc|systrim|tcache_\w+|arena_\w+|_?dl_\w+|_dl\w+|__tls_\w+|__libc_fork|__lll_lock\w*|je_\w+|mi_\w+|tc_\w+)$"
)
UNFIT_OBJECT = re.compile(r"/(ld-linux[^/]*|ld-[\d.]+|libjemalloc[^/]*|libmimalloc[^/]*|libtcmalloc[^/]*|libskinflint[^/]*)$")


def say(**what):
    print("\nskinflint:" + json.dumps(what), flush=True)


def run(command):
    return gdb.execute(command, to_string=True)


def unfit():
    """Why the selected thread must not be made to call anything, or None."""
    frame = gdb.newest_frame()
    for _ in range(FRAMES):
        if frame is None or not frame.is_valid():
            return None
        name = frame.name()
        where = gdb.solib_name(frame.pc()) or ""
        if name and UNFIT.match(name):
            return name
        if UNFIT_OBJECT.search(where):
            return where
        try:
            frame = frame.older()
        except gdb.error:
            return None
    return None


def choose():
    """Selects a thread that may be made to call; why not, if there is none."""
    why = "it has no thread"
    for thread in sorted(gdb.selected_inferior().threads(), key=lambda thread: thread.num):
        thread.switch()
        why = unfit()
        if why is None:
            return None
    return why


def address(name):
    return int(gdb.parse_and_eval("(unsigned long)&" + name))


class Fault(Exception):
    """A call did not come back."""


# Not gdb's own "call": that writes the vector registers back in a size of its own making, which some kernels refuse
# (gdb 13 here: "Couldn't write extended state status: Bad address"), and then the program goes on without them.
# This piece of code keeps them inside the program instead.
STUB = bytes.fromhex(
    "31c0 ffc8 89c2"  # eax = edx = -1: all of the state
    "490fae2424"  # xsave64 [r12]
    "31c0"  # no vector arguments
    "41ffd5"  # call r13
    "498906"  # [r14] = rax
    "31c0 ffc8 89c2"
    "490fae2c24"  # xrstor64 [r12]
    "cc"  # back to us
)
RETURNED = len(STUB)
AREA, RESULT, TEXT, CODE, PAGES = 0x2000, 0x1000, 0x1100, 0, 0x10000
REGISTERS = (
    "rax rbx rcx rdx rsi rdi rbp r8 r9 r10 r11 r12 r13 r14 r15 rsp rip eflags orig_rax".split()
)


class Calls:
    """Calls in the selected thread, whose registers are put back at the end."""

    def __init__(self):
        self.process = gdb.selected_inferior()
        self.thread = gdb.selected_thread()
        self.kept = {name: self.get(name) for name in REGISTERS}
        self.page = 0

    def get(self, name):
        gdb.newest_frame().select()
        return int(gdb.parse_and_eval("$" + name)) & (2**64 - 1)

    def set(self, **values):
        for name, value in values.items():
            # A new stack pointer makes gdb take what was the innermost frame for the caller of another, and keep it
            # selected: the next register would be set where that frame has saved it, on the program's stack.
            gdb.newest_frame().select()
            gdb.execute("set $%s = %d" % (name, value), to_string=True)

    def go(self, end, **registers):
        """Runs from where the registers say to `end`, where the program stops by itself."""
        # Not a system call any more, or the kernel would start it again.
        self.set(orig_rax=-1, **registers)
        for _ in range(100):
            run("continue")
            if not self.process.pid or not self.thread.is_valid():
                raise Fault("the program ended")
            by = gdb.selected_thread()
            self.thread.switch()
            at = self.get("rip")
            if at == end:
                return
            if by == self.thread:
                raise Fault("it stopped at " + run("x/i $pc").strip().lstrip("=> "))
            # Another thread stopped for a reason of its own; ours goes on from where it is.
        raise Fault("others stopped again and again")

    def stack(self):
        # Below the red zone, aligned as a function expects it behind its return address.
        return (self.kept["rsp"] - 512) & ~63

    def map_page(self):
        """The first call: mmap needs no vector registers. It returns to address 0, which stops it."""
        stack = self.stack() - 8
        self.process.write_memory(stack, bytes(8))
        self.go(0, rdi=0, rsi=PAGES, rdx=7, rcx=0x22, r10=0x22, r8=2**64 - 1, r9=0, rsp=stack, rip=address("mmap"))
        page = self.get("rax")
        if page >= 2**64 - 4096:
            raise Fault("mmap gave %d" % (page - 2**64))
        self.page = page
        self.process.write_memory(page + CODE, STUB)

    def call(self, function, *arguments):
        values = dict(zip(("rdi", "rsi"), arguments))
        area, result, code = self.page + AREA, self.page + RESULT, self.page + CODE
        self.go(code + RETURNED, r12=area, r13=function, r14=result, rsp=self.stack(), rip=code, **values)
        return int.from_bytes(self.process.read_memory(result, 8).tobytes(), "little")

    def text(self, text):
        at = self.page + TEXT
        self.process.write_memory(at, text.encode("utf-8", "surrogateescape") + b"\0")
        return at

    def put_back(self):
        if self.process.pid and self.thread.is_valid():
            self.thread.switch()
            self.set(**self.kept)


def in_program():
    """dlopen, dlsym, call; the program is stopped on a fit thread."""
    try:
        dlopen, dlsym, _ = map(address, ("dlopen", "dlsym", "mmap"))
    except gdb.error:
        return say(error="no_dlopen")
    calls = Calls()
    try:
        calls.map_page()
        handle = calls.call(dlopen, calls.text(ASKED["library"]), 2)
        if handle == 0:
            text = calls.call(address("dlerror"))
            why = calls.process.read_memory(text, 300).tobytes().split(b"\0")[0] if text else b""
            return say(error="dlopen", why=why.decode("utf-8", "replace"))
        entry = calls.call(dlsym, handle, calls.text(ASKED["call"]))
        if entry == 0:
            return say(error="entry")
        result = calls.call(entry, calls.text(ASKED["socket"])) & 0xFFFFFFFF
        return say(result=result - 2**32 if result >= 2**31 else result)
    except Fault as fault:
        return say(error="fault", why=str(fault))
    finally:
        # The page stays: it holds the code that gives the registers back.
        calls.put_back()


def main():
    for setting in ("pagination off", "confirm off", "debuginfod enabled off", "print thread-events off",
                    "auto-load off", "print inferior-events off"):
        try:
            run("set " + setting)
        except gdb.error:
            pass  # An older gdb.
    why = None
    for _ in range(TRIES):
        try:
            run("attach %d" % ASKED["pid"])
        except gdb.error as error:
            return say(error="attach", why=str(error))
        run("handle all nostop noprint pass")
        run("handle SIGSEGV SIGBUS SIGILL SIGFPE SIGABRT stop nopass")
        try:
            why = choose()
            if why is None:
                return in_program()
        except gdb.error as error:
            return say(error="gdb", why=str(error))
        finally:
            if gdb.selected_inferior().pid:
                run("detach")
        time.sleep(0.02)
    say(error="busy", why=why)


main()
