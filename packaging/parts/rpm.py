"""Packages of rpm's, by rpmbuild: skinflint, skinflint-libs, skinflint-devel.

    layout.split ─► three folders ─► skinflint.spec (%install copies them) ─► rpmbuild -bb ─► .rpm

Not here: which file is in which (layout.py, and %files of the spec, which rpmbuild holds against each other).
"""

import os
import shutil

from parts import layout


def make(dist):
    folders = layout.split(dist, "usr/lib64", "usr/share/zsh/site-functions/_skinflint")
    program = folders[layout.PROGRAM]
    dist.documents(os.path.join(program, "usr/share/doc/skinflint"))
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        dist.place(name, os.path.join(program, "usr/share/licenses/skinflint"), name)
        os.remove(os.path.join(program, "usr/share/doc/skinflint", name))
    top = dist.fresh("rpm")
    defined = {
        "_topdir": top,
        "given_version": dist.version,
        "given_split": os.path.dirname(program),
        "_buildhost": "localhost",
        "use_source_date_epoch_as_buildtime": "1",
        "clamp_mtime_to_source_date_epoch": "1",
        # Where this machine's rpm has no file of the distribution's: what Fedora and its kin use.
        "_docdir": "/usr/share/doc",
        "_binary_payload": "w6.xzdio",
    }
    words = [word for name, value in defined.items() for word in ("--define", f"{name} {value}")]
    spec = os.path.join(dist.packaging, "rpm/skinflint.spec")
    dist.run("rpmbuild", "--quiet", "-bb", "--target", "x86_64-linux", *words, spec)
    for name in sorted(os.listdir(os.path.join(top, "RPMS/x86_64"))):
        path = os.path.join(dist.packages, name)
        shutil.copyfile(os.path.join(top, "RPMS/x86_64", name), path)
        yield path
