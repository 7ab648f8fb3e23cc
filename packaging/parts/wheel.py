"""The wheel: program, allocator, reporters and their binding, pytest plugin.

    skinflint-VERSION.data/scripts/skinflint    the program, which carries its libraries
    skinflint/                                  packaging/wheel/skinflint; lib/libskinflint.so, lib/libskinflint_report.so
    skinflint_report.py                         bindings/python; finds its library in skinflint/lib

H1  One tag for every Python 3: nothing here is an extension module. manylinux_2_28: glibc 2.28 or later, which
    symbols.py checks, and auditwheel again (in_wheel.py).

By hand, since builders of wheels build what they put into them: a wheel is a zip file with three texts (the binary
distribution format of the Python Packaging User Guide).

Not here: a source distribution; other machines build from the sources.
"""

import base64
import hashlib
import os
import time
import zipfile

from parts import making

TAG = "py3-none-manylinux_2_28_x86_64"


def metadata(dist):
    lines = [
        "Metadata-Version: 2.4", "Name: skinflint", f"Version: {dist.version}", f"Summary: {making.SUMMARY}",
        "Author: The Skinflint authors", f"License-Expression: {making.LICENCE}", "License-File: LICENSE-MIT",
        "License-File: LICENSE-APACHE", "Requires-Python: >=3.8", "Keywords: memory,heap,profiler,allocator,leak,pytest",
        "Classifier: Framework :: Pytest", "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Topic :: Software Development :: Debuggers", "Description-Content-Type: text/markdown", "",
        making.read(os.path.join(dist.packaging, "wheel/README.md")),
    ]
    return "\n".join(lines)


def contents(dist):
    """Yields name in the wheel, data, and whether it is executed."""

    def of(path):
        with open(path, "rb") as file:
            return file.read()

    tree, info = os.path.join(dist.tree, "usr"), f"skinflint-{dist.version}.dist-info"
    package = os.path.join(dist.packaging, "wheel/skinflint")
    for name in sorted(os.listdir(package)):
        if name.endswith(".py"):
            yield f"skinflint/{name}", of(os.path.join(package, name)), False
    for name in ("libskinflint.so", "libskinflint_report.so"):
        yield f"skinflint/lib/{name}", of(os.path.join(tree, "lib/skinflint", name)), True
    yield "skinflint_report.py", of(os.path.join(dist.root, "bindings/python/skinflint_report.py")), False
    yield f"skinflint-{dist.version}.data/scripts/skinflint", of(os.path.join(tree, "bin/skinflint")), True
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        yield f"{info}/licenses/{name}", of(os.path.join(dist.root, name)), False
    yield f"{info}/entry_points.txt", b"[pytest11]\nskinflint = skinflint.pytest_plugin\n", False
    yield f"{info}/METADATA", metadata(dist).encode(), False
    wheel = f"Wheel-Version: 1.0\nGenerator: skinflint (packaging)\nRoot-Is-Purelib: false\nTag: {TAG}\n"
    yield f"{info}/WHEEL", wheel.encode(), False


def make(dist):
    path = os.path.join(dist.packages, f"skinflint-{dist.version}-{TAG}.whl")
    os.makedirs(dist.packages, exist_ok=True)
    when = time.gmtime(dist.time)[:6]
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:

        def add(name, data, is_executed):
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_executed else 0o100644) << 16
            out.writestr(entry, data)

        for name, data, is_executed in contents(dist):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            add(name, data, is_executed)
        own = f"skinflint-{dist.version}.dist-info/RECORD"
        add(own, (record + f"{own},,\n").encode(), False)
    yield path
