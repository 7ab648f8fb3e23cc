"""The npm package: program, allocator, and memory as a test for Node.js.

    packaging/npm/{package.json,index.js,pages.js,reporters.js,README.md} + bin/skinflint + lib/libskinflint.so ─► npm pack ─► .tgz

Not here: what its tests are (in_npm.py).
"""

import json
import os

from parts import making


def make(dist):
    folder = dist.fresh("npm")
    described = json.loads(making.read(os.path.join(dist.packaging, "npm/package.json")))
    described["version"] = dist.version
    making.write(os.path.join(folder, "package.json"), json.dumps(described, indent=2) + "\n")
    for name in ("index.js", "pages.js", "reporters.js", "README.md"):
        dist.place(f"packaging/npm/{name}", folder, name)
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        dist.place(name, folder, name)
    tree = os.path.relpath(os.path.join(dist.tree, "usr"), dist.root)
    dist.place(f"{tree}/bin/skinflint", folder, "bin/skinflint", 0o755)
    dist.place(f"{tree}/lib/skinflint/libskinflint.so", folder, "lib/libskinflint.so", 0o755)
    said = dist.said("npm", "pack", "--json", "--offline", "--pack-destination", dist.packages, cwd=folder)
    yield os.path.join(dist.packages, json.loads(said)[0]["filename"])
