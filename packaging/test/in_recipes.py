"""What a package cannot be asked: containers, Kubernetes, systemd, GitHub's runners. No engine of these is here.

    hadolint, kubernetes-validate, yamllint, actionlint, systemd-analyze ─► each file is well-formed, by the tool of its users
    sidecar.yaml ─► its loop, as nobody, beside a program on the allocator ─► OpenMetrics

G1  "Not run here" stands in each file: what is shown is that an engine would take it, and that the commands in it work.

Not here: the packages that they install.
"""

import os
import subprocess
import tempfile

from parts import making
from test import places

ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
WORKFLOWS = [".github/workflows/test.yml", ".github/workflows/release.yml"]
MANIFESTS = ["packaging/kubernetes/allocator.yaml", "packaging/kubernetes/sidecar.yaml"]

# The loop comes by; what it wrote is looked at; it is ended.
SIDECAR = r"""
tar -xf "$GIVEN"/skinflint-*-x86_64-linux.tar.xz
folder="$HOME/$(echo skinflint-*-x86_64-linux)"
export PATH="$folder/bin:$PATH" XDG_RUNTIME_DIR="$HOME/run" EVERY=1
mkdir -p run metrics
mkfifo hold
LD_PRELOAD="$folder/lib/skinflint/libskinflint.so" SKINFLINT_MEMORY=on cat hold &
program=$!
sh "$GIVEN/loop.sh" &
loop=$!
exec 3> hold
tries=0
until test -s "metrics/$program.prom"; do tries=$((tries + 1)); test $tries -lt 600; sleep 0.1; done
kill $loop
grep -c '^skinflint\|^[a-z_]*{' "metrics/$program.prom" | sed 's/$/ series of the program, by the loop of sidecar.yaml/'
tail -n 1 "metrics/$program.prom" | grep -q '# EOF'
"""


def lint(dist):
    bin_ = dist.tools("linters", "test/requirements.txt")
    dist.run(f"{bin_}/hadolint", "packaging/container/Containerfile")
    yield "hadolint: Containerfile"
    for file in MANIFESTS:
        dist.run(f"{bin_}/kubernetes-validate", "--strict", "--quiet", file)
    yield f"kubernetes-validate: {len(MANIFESTS)} manifests"
    settings = "packaging/test/yamllint.yaml"
    dist.run(f"{bin_}/yamllint", "--strict", "-c", settings, *MANIFESTS, *WORKFLOWS)
    yield "yamllint: manifests and workflows"
    linted = subprocess.run(["go", "run", ACTIONLINT, *WORKFLOWS], cwd=dist.root, env={**dist.environment, "GOFLAGS": "-mod=mod"},
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert linted.returncode == 0, linted.stdout
    yield f"actionlint: {len(WORKFLOWS)} workflows"
    with tempfile.TemporaryDirectory() as folder:
        unit = os.path.join(folder, "app.service")
        making.write(unit, "[Service]\nExecStart=/bin/true\nDynamicUser=yes\n")
        dist.place("packaging/systemd/skinflint.conf", unit + ".d", "skinflint.conf")
        said = dist.run("systemd-analyze", "verify", "--man=no", unit, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        own = [line for line in said.splitlines() if "app.service" in line or "skinflint.conf" in line]
        assert not own, said
    yield "systemd-analyze: drop-in"


def loop(dist):
    """The sidecar's loop, as the manifest has it; its folders are the test's."""
    ask = "import sys, yaml; pod = yaml.safe_load(sys.stdin); print(pod['spec']['initContainers'][1]['args'][0])"
    text = making.read(os.path.join(dist.root, "packaging/kubernetes/sidecar.yaml"))
    said = dist.run(os.path.join(dist.tools("linters", "test/requirements.txt"), "python"), "-c", ask, input=text, text=True, stdout=subprocess.PIPE).stdout
    return said.replace("/metrics/", "$HOME/metrics/")


def test(dist):
    yield from lint(dist)
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "loop.sh")
        making.write(script, loop(dist))
        given = [script, places.package(dist, "-x86_64-linux.tar.xz")]
        yield from places.as_nobody(dist, SIDECAR, given).splitlines()
