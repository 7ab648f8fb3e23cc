"""The ground crates, the allocator and the recorder on aarch64, in an emulated process (qemu-aarch64-static).

    tests     cargo test --no-run --target aarch64… ─► each test program, less what an emulated process cannot show (CANNOT)
    programs  stacks.c, with and without signed return addresses ─► on the allocator, pages of 4, 16 and 64 KiB
                                                                 ─► recorded: how many events, and the stack of all blocks
    check     cargo check --workspace --target aarch64… ─► all of it, the collected heap and the command line too

        python3 tests/aarch64/run.py [--only tests,programs,check]

L1  A test that is left out is named here, with the reason. Everything else must pass; what hangs for an hour has failed.
L2  qemu gives no vdso, has no process_vm_readv, rseq or filter of system calls, and its mincore answers for few ranges.
L3  The orders of memory are this machine's, not aarch64's: what a weaker order would show, no run here shows.

Not here: a kernel of aarch64 (machine.py).
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TARGET = "aarch64-unknown-linux-gnu"
SYSROOT = "/usr/aarch64-linux-gnu"
QEMU = ["qemu-aarch64-static", "-L", SYSROOT]
CRATES = ["base", "framing", "sizes", "unwind", "pages", "alloc"]
# For hangs: a machine may be busy.
LIMIT_S = 3600
NO_READ = "process_vm_readv is not there"
NO_MINCORE = "mincore answers for few ranges"
NO_MOVE = "what mremap leaves mapped (MREMAP_DONTUNMAP) is forgotten, so blocks are copied"
NO_SYNDROME = "a fault comes without the processor's syndrome, so a write counts as a read"
NO_ADVICE = "all advice succeeds, and most of it is not passed on"
EMULATORS = "the resident memory is the emulator's, too: some hundred KiB a thread"
# Program, test (its beginning), reason.
CANNOT = [
    ("skinflint_base", "filter::tests::the_kernel_answers_the_same", "no filter of system calls is taken"),
    ("skinflint_base", "stack::tests::a_mapping_is_found_by_any_address", "the kernel's version is told, and not what it can do (PROCMAP_QUERY)"),
    ("skinflint_unwind", "foreign::tests::", NO_READ),
    ("signals", "a_fibre_is_foreign_and_its_end_is_found", NO_READ),
    ("signals", "handlers_on_an_alternate_stack", NO_READ),
    ("hardened", "frames_are_named_by_their_modules", NO_READ),
    ("profile", "blocks_outlive_their_threads", NO_READ),
    ("profile", "each_stack_s_bytes_are_right_within_the_error", NO_READ),
    ("hardened", "a_sampled_block_is_guarded_and_tells_whose_it_is", NO_SYNDROME),
    ("hardened", "both_sides_of_a_large_block_are_guarded", NO_SYNDROME),
    ("skinflint_pages", "cold::tests::contents_stay_and_locked_pages_are_not_counted", NO_ADVICE),
    ("skinflint_pages", "the_heap_wants_no_huge_pages_and_is_one_mapping", NO_ADVICE),
    ("skinflint_pages", "a_range_that_is_mapped_anew_is_zero", NO_ADVICE),
    ("skinflint_pages", "where_no_base_works_the_kernel_chooses", "mappings begin where the emulator likes"),
    ("skinflint_alloc", "heaps::large::tests::a_block_that_moved_leaves_nothing_dirty", NO_MOVE),
    ("skinflint_alloc", "services::check::tests::", NO_MINCORE),
    ("skinflint_alloc", "services::harden::untouched::tests::", NO_MINCORE),
    ("engine", "seams::moved_blocks_keep_their_contents_and_leave_no_mappings", NO_MOVE),
    ("tenants", "many_threads_use_one_heap_and_free_each_other_s_blocks", "it looks at each byte: it passes in 150 s of processor time"),
    ("engine", "seams::new_pages_of_a_large_class_come_four_at_a_time", NO_MINCORE),
]
# Whole programs, with the reason.
CANNOT_RUN = {
    "idle_threads": "sections are not restartable here, so nothing is taken",
    "growing": EMULATORS,
    "peak": EMULATORS,
    "estimate": "a hundred runs of a statistic: minutes",
    "models": "nothing of the processor: it runs on x86-64",
    "ring_model": "as models",
}


def run(command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S, **more).stdout


def need(tool, package):
    if not shutil.which(tool):
        sys.exit(f"aarch64: {tool} is missing: apt-get install {package}")


def environment():
    return {**os.environ, "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": "aarch64-linux-gnu-gcc",
            "CC_aarch64_unknown_linux_gnu": "aarch64-linux-gnu-gcc", "QEMU_LD_PREFIX": SYSROOT}


def programs():
    """The test programs, built: [(name, path, folder that they run in)]."""
    command = ["cargo", "test", "--locked", "--target", TARGET, "--no-run", "--message-format=json"]
    for crate in CRATES:
        command += ["-p", "skinflint-" + crate]
    built = subprocess.run(command, cwd=ROOT, env=environment(), check=True, stdout=subprocess.PIPE, text=True).stdout
    found = []
    for line in built.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            found.append((message["target"]["name"], message["executable"], os.path.dirname(message["manifest_path"])))
    return sorted(found)


def test(name, path, folder):
    """One program: what was left out; how many tests passed, and whether all that ran did."""
    skipped = [(test, reason) for program, test, reason in CANNOT if program == name]
    options = [word for test, _ in skipped for word in ("--skip", test)]
    began = time.monotonic()
    try:
        ended = subprocess.run([*QEMU, path, "--test-threads", "2", *options], cwd=folder, env=environment(),
                               capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"  {name}: no end in {LIMIT_S} s — FAILED", flush=True)
        return 0, False
    passed = sum(int(number) for number in re.findall(r"^test result: \w+\. (\d+) passed", ended.stdout, re.M))
    print(f"  {name}: {passed} passed, {len(skipped)} left out, {time.monotonic() - began:.0f} s"
          + ("" if ended.returncode == 0 else " — FAILED"), flush=True)
    for left_out, reason in skipped:
        print(f"    not {left_out}: {reason}")
    if ended.returncode:
        # With the line behind it, which says what was found.
        said = re.findall(r"^.*(?:FAILED|panicked).*$(?:\n(?!test ).+$)?", ended.stdout, re.M)
        print("\n".join(said or (ended.stdout + ended.stderr).splitlines()[-3:]))
    return passed, ended.returncode == 0


def compiled(work):
    """stacks.c without and with signed return addresses."""
    made = []
    for name, more in (("plain", []), ("signed", ["-mbranch-protection=standard"])):
        made.append(os.path.join(work, "stacks-" + name))
        run(["aarch64-linux-gnu-gcc", "-O2", "-g", *more, "-o", made[-1], os.path.join(HERE, "stacks.c")])
    return made


def on_the_allocator(program, library):
    for bytes_of_page in (4096, 16384, 65536):
        figures = subprocess.run([*QEMU, "-p", str(bytes_of_page), "-E", "LD_PRELOAD=" + library, "-E", "SKINFLINT_STATS=1",
                                  program], capture_output=True, text=True, check=True, timeout=LIMIT_S)
        last = json.loads(figures.stderr.strip().splitlines()[-1])
        assert figures.stdout == "done\n" and last["balanced"] and last["live"]["small_blocks"] >= 5000, figures.stderr
        print(f"  {os.path.basename(program)} on the allocator, pages of {bytes_of_page}: held", flush=True)


def recorded(work, program, recorder):
    """Records the emulated program by the collector of this machine; its calls must have come from leaf, fill, main."""
    folder = os.path.join(work, "traces")
    shutil.rmtree(folder, ignore_errors=True)
    skinflint = os.path.join(ROOT, "target/release/skinflint")
    emulated = " ".join([*QEMU, "-E", "LD_PRELOAD=" + recorder, program])
    run([skinflint, "record", "--all", "--dir", folder, "--", "sh", "-c", emulated + "; true"])
    trace, = glob.glob(os.path.join(folder, "*qemu*.sft"))
    report = run([skinflint, "report", "--full-stacks", trace])
    assert re.search(r"\b15,001 events", report), report[:400]
    names = {}
    for line in run(["aarch64-linux-gnu-nm", "-S", program]).splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "Tt":
            names[words[3]] = (int(words[0], 16), int(words[0], 16) + int(words[1], 16))
    addresses = [int(text, 16) for text in re.findall(r"at qemu-aarch64-static\+0x([0-9a-f]+)\n\s+qemu-aarch64-static\+0x", report)]
    inner, = set(addresses[:1])
    stack = [int(text, 16) for text in re.findall(r"qemu-aarch64-static\+0x([0-9a-f]+)", report[report.index(f"at qemu-aarch64-static+0x{inner:x}\n"):])][:3]
    for function, address in zip(("leaf", "fill", "main"), stack, strict=True):
        low, high = names[function]
        assert low < address <= high, f"{function}: {address:#x} is not in {low:#x}..{high:#x}"
    print(f"  {os.path.basename(program)} recorded: 15,001 events, from leaf in fill in main", flush=True)


def tests():
    """All test programs: how many of them failed."""
    passed, failed = 0, 0
    for name, path, folder in programs():
        if name in CANNOT_RUN:
            print(f"  {name}: not run: {CANNOT_RUN[name]}")
            continue
        some, held = test(name, path, folder)
        passed, failed = passed + some, failed + (not held)
    print(f"  {passed} tests passed", flush=True)
    return failed


def whole_programs():
    work = os.path.join(ROOT, "target", "aarch64")
    os.makedirs(work, exist_ok=True)
    # Without a limit: a machine may be busy.
    subprocess.run(["cargo", "build", "--locked", "--release", "--target", TARGET, "-p", "skinflint-malloc-so",
                    "-p", "skinflint-record-so", "-p", "skinflint-probe-so", "-p", "skinflint-replay"],
                   cwd=ROOT, env=environment(), check=True)
    libraries = os.path.join(ROOT, "target", TARGET, "release")
    for program in compiled(work):
        on_the_allocator(program, os.path.join(libraries, "libskinflint.so"))
        recorded(work, program, os.path.join(libraries, "libskinflint_record.so"))
    return 0


def check():
    subprocess.run(["cargo", "check", "--quiet", "--locked", "--workspace", "--target", TARGET], cwd=ROOT, env=environment(), check=True)
    print("  all crates: checked", flush=True)
    return 0


PARTS = {"tests": tests, "programs": whole_programs, "check": check}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    chosen = parser.parse_args().only.split(",")
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}: " + ", ".join(PARTS))
    need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")
    need("qemu-aarch64-static", "qemu-user-static")
    if not os.path.exists("/proc/sys/fs/binfmt_misc/qemu-aarch64"):
        sys.exit("aarch64: tests that start themselves need a kernel that knows the emulator:\n"
                 "  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc\n"
                 "  cat /usr/lib/binfmt.d/qemu-aarch64.conf > /proc/sys/fs/binfmt_misc/register")
    if TARGET not in run(["rustup", "target", "list", "--installed"]):
        sys.exit(f"aarch64: no Rust for it: rustup target add {TARGET}")
    failed = 0
    for part in chosen:
        began = time.monotonic()
        print(f"{part}:", flush=True)
        failed += PARTS[part]()
        print(f"  {part}: {time.monotonic() - began:.0f} s", flush=True)
    print("aarch64: " + (f"{failed} programs failed" if failed else "everything held"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
