"""What is asked of the recording of a real program, as functions of what was seen.

    bare run ──┐
    recorded ──┼── same()         J1  output and exit status are those of the bare run
    watched ───┼── whole()        J2  complete is what is complete, and nothing else
    reports ───┼── high_water()   J3  the books know the kernel's high-water mark, or say that no look fell on it
               ├── unclassified() J4  the books explain what is resident
    smaps ─────┴── agrees()       J5  rows are those of /proc/PID/smaps at the same instant

Each returns a Verdict; none reads a file or a clock. Not here: running programs (real.py), which programs (programs.toml).
"""
import dataclasses
import os
import re

# Kernels count pages in batches for each processor: so much may separate two counts of the same memory.
COUNT_SLACK = 512 << 10
HIGH_WATER = 0.98
UNCLASSIFIED = 0.02
SMAPS = 0.005
# Said of the kernel's mark, or of a sample that was near it: the books are not of that moment.
SAID = "no look fell on it|the largest moment with full figures had|there are no books"


@dataclasses.dataclass
class Verdict:
    """One judgement: None is "could not be had" and neither good nor bad."""
    ok: bool | None
    figure: str
    why: str = ""


@dataclasses.dataclass
class Run:
    """What a run left behind."""
    status: int
    out: bytes
    err: bytes
    shown: bytes


@dataclasses.dataclass
class Watched:
    """A process as /proc showed it while it lived."""
    pid: int
    exe: str
    name: str
    high_water: int
    # It was also seen as another program, so this may be the moment between fork and exec.
    passing: bool = False


def normalised(text, rules):
    """The same text without what differs from run to run."""
    for pattern, to in rules:
        text = re.sub(pattern.encode(), to.encode(), text)
    return text


def same(bare, recorded, rules, streams=("out", "err")):
    """J1."""
    if bare.status != recorded.status:
        return Verdict(False, "differs", f"exit status {bare.status} bare, {recorded.status} recorded")
    for name in (*streams, "shown"):
        one, two = (normalised(getattr(run, name), rules) for run in (bare, recorded))
        if one != two:
            at = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))
            near = slice(max(at - 40, 0), at + 60)
            return Verdict(False, "differs", f"{name} at byte {at}: {one[near]!r} bare, {two[near]!r} recorded")
    return Verdict(True, "same")


def said(reports):
    """All that the reports say of what is missing or odd."""
    return "\n".join(note for report in reports for note in report["completeness"]["notes"])


def is_recorded(process, reports):
    """Whether a trace is about this process as this program."""
    of_pid = [report["program"] for report in reports if report["program"]["pid"] == process.pid]
    if process.passing:
        return True
    return any(os.path.basename(one["exe"]) == os.path.basename(process.exe) for one in of_pid)


def whole(reports, watched, expected=None):
    """J2: `expected` is a pattern of notes with which a recording may be called incomplete."""
    if not reports:
        return Verdict(False, "no trace", "nothing was recorded")
    for report in reports:
        done = report["completeness"]
        if done["complete"] and done["lost_events"] + done["unread_events"] > 0:
            return Verdict(False, "wrong", f"{report['program']['name']}: {done}")
        excused = expected and re.search(expected, "\n".join(done["notes"]))
        if not done["complete"] and not excused:
            name = f"{report['program']['name']} {report['program']['pid']}"
            return Verdict(False, "INCOMPLETE", f"{name} is called incomplete: {done['notes']}")
    notes = said(reports)
    told = 0
    for process in watched:
        if is_recorded(process, reports):
            continue
        name = os.path.basename(process.exe) or process.name
        if name not in notes and process.name not in notes:
            return Verdict(False, "unsaid", f"{name} ({process.pid}) has no trace, and no report says so")
        told += 1
    return Verdict(True, f"{len(reports)} whole" + (f", {told} told of" if told else ""))


def greatest(report):
    """The greatest resident memory with full figures, and of the samples between."""
    books = [one["books"]["resident_bytes"] for one in report["instants"] if one["books"]]
    return max(books, default=0), max(report["timeline"]["rss_bytes"], default=0)


def of_process(process, reports):
    """The reports of one process as one program."""
    name = os.path.basename(process.exe)
    here = [report for report in reports if report["program"]["pid"] == process.pid]
    return [report for report in here if os.path.basename(report["program"]["exe"]) == name]


def high_water(reports, watched):
    """J3: the worst process that says nothing, or else the largest one."""
    rows, bad = [], []
    for process in watched:
        for report in of_process(process, reports):
            mark = max(process.high_water, report["program"]["max_rss_bytes"] or 0)
            full, sample = greatest(report)
            share = full / mark if mark else 1.0
            near = share >= HIGH_WATER or mark - full <= COUNT_SLACK
            is_said = bool(re.search(SAID, "\n".join(report["completeness"]["notes"])))
            rows.append((mark, share, sample / mark if mark else 1.0, is_said, report["program"]["name"]))
            if not near and not is_said:
                bad.append((share, report["program"]["name"], full, mark))
    if not rows:
        return Verdict(None, "–", "no process was seen while it lived")
    mark, share, sample, is_said, name = max(rows)
    figure = f"{min(share, 1.0):.1%}" + (" said" if is_said else "")
    if bad:
        share, name, full, mark = min(bad)
        return Verdict(False, figure, f"{name}: books of {full} bytes at most, high-water mark {mark}, {share:.1%}")
    return Verdict(True, figure, f"{name}, {mark >> 20} MiB; samples {min(sample, 1.0):.1%}")


def unclassified(reports):
    """J4: the worst moment of all processes."""
    worst, where = 0.0, ""
    for report in reports:
        for instant in report["instants"]:
            books = instant["books"]
            if not books or not books["resident_bytes"]:
                continue
            share = sum(row["bytes"] for row in books["rows"] if row["id"] == "unclassified") / books["resident_bytes"]
            if share > worst:
                worst, where = share, f"{report['program']['name']} {report['program']['pid']} at {instant['label']}"
    return Verdict(worst <= UNCLASSIFIED, f"{worst:.2%}", where)


def smaps_groups(text):
    """Resident bytes of a reading of smaps: of files, of what may be a file's zeroed data, shared, all."""
    groups = {"files": 0, "bss": 0, "shared": 0, "all": 0, "recorder": 0}
    kind, data_end = None, None
    for line in text.splitlines():
        head = line.split(None, 5)
        if not head[0].endswith(":"):
            start, end = (int(part, 16) for part in head[0].split("-"))
            name = head[5] if len(head) > 5 else ""
            is_shared = head[1].endswith("s")
            if "skinflint" in name:
                kind = "recorder"
            elif re.match(r"/memfd:|/dev/shm/|/dev/zero|/SYSV|\[anon_shmem", name) or (is_shared and not name):
                kind = "shared"
            elif name.startswith("/"):
                kind = "files"
            else:
                # Zeroed data of an object follows its written data; its pages may be either.
                kind = "bss" if not name and start == data_end else None
            data_end = end if kind == "files" and head[1].startswith("rw") else None
        elif head[0] == "Rss:":
            resident = int(head[1]) * 1024
            groups["all"] += resident
            if kind:
                groups[kind] += resident
    return groups


def agrees(books, groups):
    """J5."""
    if not books or not groups:
        return Verdict(None, "–", "it did not live long enough to be stopped")
    rows = {row["id"]: row["bytes"] for row in books["rows"]}
    every = groups["all"]
    files = rows["mapped-files"] + rows.get("program-files", 0)
    ranges = {
        "resident": (books["resident_bytes"], every, every),
        "sum of rows": (sum(rows.values()), every, every),
        "mapped-files": (files, groups["files"], groups["files"] + groups["bss"]),
        "shared": (rows["shared"], groups["shared"], groups["shared"]),
    }
    worst, where = 0.0, ""
    for name, (row, low, high) in ranges.items():
        off = max(low - row, row - high, 0) / every
        if off > worst:
            worst, where = off, f"{name}: {row} in the books, {low} to {high} in smaps"
    return Verdict(worst <= SMAPS, f"{worst:.2%}", where)
