"""Crates, as `cargo package` makes them: all that are published, the dependencies of each before it.

    Cargo.toml of each: description, licence, exact versions of ours ─► cargo package ─► crates/*.crate, crates/ORDER

T1  Crates of ours ask for each other's exact version: recorder and collector speak one protocol.
T2  Dependencies of tests among ours are by path alone, which cargo leaves out of a package: crates that only tests use are
    not published.

Not here: that they build (in_crates.py).
"""

import json
import os
import shutil

from parts import making


def published(dist):
    """Names of the crates, each after those that it depends on."""
    packages = json.loads(dist.said("cargo", "metadata", "--no-deps", "--locked", "--format-version", "1"))["packages"]
    needs = {package["name"]: {one["name"] for one in package["dependencies"] if one["kind"] != "dev" and "path" in one}
             for package in packages if package["publish"] != []}
    order = []
    while len(order) < len(needs):
        free = sorted(name for name, own in needs.items() if name not in order and own <= set(order))
        assert free, f"crates depend on each other in a circle, or on one that is not published: {needs.keys() - set(order)}"
        order += free
    return order


def make(dist):
    order = published(dist)
    built, results = os.path.join(dist.folder, "crates"), os.path.join(dist.packages, "crates")
    shutil.rmtree(results, ignore_errors=True)
    os.makedirs(results)
    words = [word for name in order for word in ("-p", name)]
    dist.run("cargo", "package", "--quiet", "--locked", "--no-verify", "--target-dir", built, *words)
    for name in order:
        path = os.path.join(results, f"{name}-{dist.version}.crate")
        shutil.copyfile(os.path.join(built, "package", os.path.basename(path)), path)
        yield path
    making.write(os.path.join(results, "ORDER"), "".join(f"{name}\n" for name in order))
