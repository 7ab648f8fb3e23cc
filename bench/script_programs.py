"""The eight programs of Ruby and PHP whose recording is counted in instructions: libraries of Debian's, on text made by seed.

    name ──► interpreter, bench/programs/scripts/FILE, the package that has the library
"""
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "programs", "scripts")

PROGRAMS = {
    "kramdown": ("ruby", "kramdown.rb", "ruby-kramdown"),
    "asciidoctor": ("ruby", "asciidoctor.rb", "ruby-asciidoctor"),
    "csv": ("ruby", "csv.rb", "libruby3.1"),
    "rake": ("ruby", "rake.rb", "rake"),
    "twig": ("php", "twig.php", "php-twig"),
    "smarty": ("php", "smarty.php", "smarty4"),
    "parsedown": ("php", "parsedown.php", "php-parsedown"),
    "parser": ("php", "parser.php", "php-parser"),
}
#: The interpreters' own packages.
INTERPRETERS = ("ruby3.1", "php8.2-cli")


def command(name):
    """The command of a program."""
    interpreter, file, _ = PROGRAMS[name]
    return [f"/usr/bin/{interpreter}", os.path.join(SCRIPTS, file)]


def version(package):
    """The version of an installed package; empty if it is not installed."""
    try:
        done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Version}", package], capture_output=True,
                              text=True, timeout=60)
    except OSError:
        return ""
    status, _, found = done.stdout.partition(" ")
    return found.strip() if done.returncode == 0 and status.startswith("ii") else ""


def versions(names):
    """A line of versions, and the packages that are missing."""
    found = {package: version(package) for package in [*INTERPRETERS, *(PROGRAMS[name][2] for name in names)]}
    missing = [package for package, one in found.items() if not one]
    return ", ".join(f"{package} {one or 'absent'}" for package, one in found.items()), missing
