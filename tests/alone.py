#!/usr/bin/env python3
"""Each crate's tests by themselves, from a clone where nothing of ours was built: do they ask for what they need?

    python3 tests/alone.py                        every crate, as root and as nobody (hours)
    python3 tests/alone.py --only cache,report    two of them
    python3 tests/alone.py --user nobody          not as root; run without root, it is whoever runs it
    python3 tests/alone.py --seed target          crates of others are taken from a target folder, not built again

      git clone ─► per crate and user: our artifacts and the C programs are removed from its target folder
               └─► env -i HOME=… PATH=… cargo test --locked -p CRATE ─► passed, failed, skipped, seconds

The toolchain and the registry's crates are copied into the work folder, so that nobody may read them; the network is not
asked for anything after that. Installed programs are the machine's own: what is missing must be a skip, and is listed.
Exit 1 if a crate failed. The log of each run stays in the work folder.
"""
import argparse
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Of whose tests some are behind a feature. Browsers have targets of their own (make tabs-test, make consumers-test).
FEATURES = {"cache": ["images"], "export": ["parquet"], "reporters": ["files,page"], "document-host": ["host"]}
# The longest that one crate may take, building included.
PATIENCE_S = 3600
RESULT = re.compile(r"^test result: .*?(\d+) passed; (\d+) failed", re.M)


def crates():
    """Packages of the workspace, those with the fewest dependencies on others of it first."""
    said = subprocess.run(["cargo", "metadata", "--no-deps", "--locked", "--format-version", "1"],
                          cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    packages = {one["name"]: one for one in json.loads(said)["packages"]}
    weight = {}

    def weigh(name):
        if name not in weight:
            weight[name] = 0
            inside = {dep["name"] for dep in packages[name]["dependencies"]} & set(packages)
            weight[name] = 1 + sum(weigh(dep) for dep in inside)
        return weight[name]

    return sorted(packages, key=lambda name: (weigh(name), name))


def short(package):
    return package.removeprefix("skinflint-")


class Place:
    """A user's clone, home and target folder."""

    def __init__(self, work, user):
        self.user, self.work = user, work
        self.home, self.clone, self.target = work / f"home-{user}", work / f"clone-{user}", work / f"target-{user}"
        self.home.mkdir(parents=True, exist_ok=True)
        if self.clone.exists():
            shutil.rmtree(self.clone)
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, self.clone], check=True)
        registry = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo")) / "registry"
        if not (self.home / ".cargo/registry").exists():
            shutil.copytree(registry, self.home / ".cargo/registry", symlinks=True)
        self.target.mkdir(exist_ok=True)

    def own(self):
        """Everything becomes the user's."""
        if os.geteuid() == 0:
            for folder in (self.home, self.clone, self.target):
                subprocess.run(["chown", "-R", self.user, folder], check=True)

    def command(self, words):
        """`words` in a clean environment, by that user."""
        path = f"{self.work}/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = ["env", "-i", f"HOME={self.home}", f"PATH={path}", f"CARGO_TARGET_DIR={self.target}", "CARGO_NET_OFFLINE=true"]
        mine = pwd.getpwuid(os.geteuid()).pw_name
        become = [] if self.user == mine else ["setpriv", f"--reuid={self.user}", "--regid=65534", "--clear-groups", "--"]
        return become + env + list(words)

    def sweep(self, ours):
        """Leaves what was built of other people's crates, and nothing else."""
        for entry in self.target.iterdir() if self.target.exists() else []:
            if entry.name in ("debug", "release"):
                sweep_profile(entry, ours)
            elif entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != "CACHEDIR.TAG":
                entry.unlink()


def sweep_profile(profile, ours):
    names = [name.replace("-", "_") for name in ours]

    def is_ours(entry):
        stem = entry.name.removeprefix("lib").replace("-", "_")
        return any(stem == name or stem.startswith(name + "_") for name in names) or stem.startswith("skinflint")

    for entry in profile.iterdir():
        if entry.name in ("deps", "build", ".fingerprint"):
            for one in entry.iterdir():
                # A program has no extension: a test, which only our packages have here.
                if is_ours(one) or entry.name == "deps" and "." not in one.name:
                    shutil.rmtree(one) if one.is_dir() else one.unlink()
        elif entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != ".cargo-lock":
            entry.unlink()


def seed(place, folder):
    for profile in ("debug", "release"):
        for part in ("deps", "build", ".fingerprint"):
            source, to = folder / profile / part, place.target / profile / part
            if source.exists() and not to.exists():
                to.parent.mkdir(exist_ok=True)
                subprocess.run(["cp", "-a", source, to], check=True)


def toolchain(work):
    """A copy that anybody may read: the sysroot that is in use."""
    if not (work / "toolchain").exists():
        sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        shutil.copytree(sysroot, work / "toolchain", symlinks=True, ignore=shutil.ignore_patterns("doc", "share"))


def run(place, package, features, log):
    """One crate's tests: whether they held, passed, failed, skipped lines, seconds."""
    words = ["cargo", "test", "--locked", "--no-fail-fast", "-p", package]
    words += ["--features", features] if features else []
    begun = time.monotonic()
    with open(log, "wb") as out:
        child = subprocess.Popen(place.command(words), cwd=place.clone, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                 start_new_session=True)
        try:
            status = child.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
            out.write(f"alone.py: still at it after {PATIENCE_S} s\n".encode())
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
    text = log.read_text(errors="replace")
    counts = [(int(passed), int(failed)) for passed, failed in RESULT.findall(text)]
    file = place.target / "skipped.txt"
    skipped = sorted(set(file.read_text().splitlines())) if file.exists() else []
    return (status == 0, sum(one for one, _ in counts), sum(one for _, one in counts), skipped, time.monotonic() - begun)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", metavar="A,B", help="these crates, without skinflint-")
    arguments.add_argument("--user", choices=["root", "nobody", "both"], default="both")
    arguments.add_argument("--seed", metavar="FOLDER", type=pathlib.Path, help="a target folder to take other people's crates from")
    arguments.add_argument("--work", metavar="FOLDER", type=pathlib.Path,
                           default=pathlib.Path(tempfile.gettempdir()) / "skinflint-alone", help="where all of it is done")
    args = arguments.parse_args()
    mine = pwd.getpwuid(os.geteuid()).pw_name
    users = [mine] if os.geteuid() else {"root": ["root"], "nobody": ["nobody"], "both": ["root", "nobody"]}[args.user]
    packages = crates()
    wanted = [name for name in packages if not args.only or short(name) in args.only.split(",")]
    unknown = set(args.only.split(",") if args.only else []) - {short(name) for name in packages}
    if unknown:
        sys.exit(f"alone.py: no crate {', '.join(sorted(unknown))}; there are {', '.join(map(short, packages))}")
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout:
        print("alone.py: what is not committed is not in the clone", file=sys.stderr)
    args.work.mkdir(mode=0o755, parents=True, exist_ok=True)
    subprocess.run(["cargo", "fetch", "--locked"], cwd=ROOT, check=True)
    toolchain(args.work)
    failed, all_skipped = 0, set()
    print(f"{'crate':28} {'user':8} {'passed':>6} {'failed':>6} {'skipped':>7} {'seconds':>7}", flush=True)
    for user in users:
        place = Place(args.work, user)
        if args.seed:
            seed(place, args.seed)
        for package in wanted:
            for features in [None, *FEATURES.get(short(package), [])]:
                place.sweep(packages)
                place.own()
                name = short(package) + (f" --features {features}" if features else "")
                log = args.work / f"{user}-{name.replace(' --features ', '-')}.log"
                held, passed, lost, skipped, seconds = run(place, package, features, log)
                print(f"{name:28} {user:8} {passed:6} {lost:6} {len(skipped):7} {seconds:7.0f}"
                      + ("" if held else f"  FAILED: {log}"), flush=True)
                failed += not held
                all_skipped.update(f"{user}: {line}" for line in skipped)
    for line in sorted(all_skipped):
        print(line)
    print(f"{failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
