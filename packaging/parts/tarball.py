"""Tarballs: the program as a tree that works wherever it is unpacked, its debug information, the sources.

    tree/usr ─┬─► skinflint-VERSION-x86_64-linux.tar.xz          bin/ lib/ include/ share/, documents
              └─► skinflint-VERSION-x86_64-linux-debug.tar.xz    lib/skinflint/debug/
    git archive ─► skinflint-VERSION.tar.xz

Not here: SHA256SUMS (making.py).
"""

import lzma
import os
import shutil

from parts import making


def relocatable(folder):
    """pkg-config takes the tree to be where its file lies."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        text = making.read(path)
        assert "prefix=/usr\n" in text, path
        making.write(path, text.replace("prefix=/usr\n", "prefix=${pcfiledir}/../..\n"))


def make(dist):
    folder = dist.fresh("tarball")
    whole, debug = os.path.join(folder, "whole"), os.path.join(folder, "debug")
    shutil.copytree(os.path.join(dist.tree, "usr"), whole, symlinks=True)
    os.makedirs(os.path.join(debug, "lib/skinflint"))
    shutil.move(os.path.join(whole, "lib/skinflint/debug"), os.path.join(debug, "lib/skinflint/debug"))
    relocatable(os.path.join(whole, "lib/pkgconfig"))
    dist.documents(os.path.join(whole, "share/doc/skinflint"))
    name = f"skinflint-{dist.version}-x86_64-linux"
    yield dist.archive(whole, name)
    yield dist.archive(debug, f"{name}-debug")
    sources = os.path.join(dist.packages, f"skinflint-{dist.version}.tar.xz")
    prefix = f"--prefix=skinflint-{dist.version}/"
    tar = dist.run("git", "archive", "--format=tar", prefix, "HEAD", stdout=-1).stdout
    with lzma.open(sources, "wb", preset=6) as out:
        out.write(tar)
    yield sources
