"""Crates, built from their packages alone: a program on the libraries, and the command line with its libraries beside it.

    crates/*.crate ─► unpacked in a scratch folder, the checkout covered ─┬─► user.rs
      [patch.crates-io]: ours come from there, all others from the index  └─► skinflint + libskinflint_record.so ─► demo.sh, cargo skinflint test

Z1  The lock is the checkout's, so what is built here is what was tested there.
Z2  cargo is root's; what it built is run by nobody.

Not here: uploading.
"""

import os
import shutil
import tarfile

from parts import making
from test import places

PARTS = ["skinflint-cli", "skinflint-record-so", "skinflint-malloc-so", "skinflint-probe-so", "skinflint-replay", "skinflint-reporters-so"]
USER = ["alloc", "cache", "gc", "reporters"]
HIDDEN = r"""set -eu
mount -t tmpfs none "$1"
cd "$2"
shift 2
exec "$@"
"""


def workspace(dist, folder):
    """Unpacks all crates into a workspace; returns their names."""
    crates = os.path.join(dist.packages, "crates")
    order = making.read(os.path.join(crates, "ORDER")).split()
    for name in order:
        with tarfile.open(os.path.join(crates, f"{name}-{dist.version}.crate")) as crate:
            crate.extractall(folder, filter="data")
        os.rename(os.path.join(folder, f"{name}-{dist.version}"), os.path.join(folder, name))
        # A package brings a lock of its own.
        lock = os.path.join(folder, name, "Cargo.lock")
        if os.path.exists(lock):
            os.remove(lock)
    user = os.path.join(folder, "user")
    needs = "".join(f'skinflint-{name} = "={dist.version}"\n' for name in USER)
    making.write(os.path.join(user, "Cargo.toml"), f'[package]\nname = "user"\nedition = "2024"\n[dependencies]\n{needs}')
    dist.place("packaging/test/user.rs", user, "src/main.rs")
    members = ", ".join(f'"{name}"' for name in [*order, "user"])
    patches = "".join(f'{name} = {{ path = "{name}" }}\n' for name in order)
    text = f'[workspace]\nresolver = "3"\nmembers = [{members}]\n[patch.crates-io]\n{patches}'
    # As ours: what has no `std` cannot unwind.
    text += '[profile.dev]\npanic = "abort"\ndebug = false\n'
    making.write(os.path.join(folder, "Cargo.toml"), text)
    shutil.copy(os.path.join(dist.root, "Cargo.lock"), folder)
    return order


def test(dist):
    with places.scratch(dist) as folder:
        order = workspace(dist, folder)
        target = os.path.join(folder, "target")

        def hidden(*command):
            unseen = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", HIDDEN, "sh", dist.root, folder]
            # Without a limit: some hundred crates of others are compiled, and a machine may be busy.
            return places.ran(dist, *unseen, *command, timeout=None)

        hidden("cargo", "build", "--quiet", *[word for name in [*PARTS, "user"] for word in ("-p", name)], "--target-dir", target)
        yield f"{len(order)} crates in order, built from their packages"
        built = os.path.join(target, "debug")
        files = ["skinflint", "cargo-skinflint", "skinflint-replay", "libskinflint.so", "libskinflint_record.so", "libskinflint_probe.so", "user"]
        given = [*(os.path.join(built, name) for name in files), *places.own(dist, "demo.sh")]
        script = 'export PATH="$GIVEN:$PATH"; user; sh "$GIVEN/demo.sh" "$GIVEN/demo.sql"'
        yield from places.as_nobody(dist, script, given).splitlines()
        shutil.copytree(os.path.join(dist.root, "tests/cargo"), os.path.join(folder, "app"))
        gate = f'cd app && PATH="{built}:$PATH" CARGO_TARGET_DIR="{target}" cargo skinflint test --lib -- small'
        said = hidden("sh", "-c", gate)
        assert "1 test held, 0 broken" in said, said
        yield f"cargo skinflint test: {said.splitlines()[-1]}"
