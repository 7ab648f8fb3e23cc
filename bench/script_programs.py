"""The programs of Ruby, PHP and Java whose recording is counted in instructions: libraries of Debian's, on text made by seed; tools
of Java's own.

    name ──► interpreter, bench/programs/scripts/FILE, the package that has the library
    name ──► file of bench/programs/planted, or tool of Java's with its arguments
"""
import atexit
import functools
import os
import shutil
import subprocess
import tempfile

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
#: Programs of Java: direct buffers of eight threads, and a tool of Java's own. Interpreted, with the collector of one thread: what
#: compiles and collects beside the program is counted, too, and differs from run to run.
JAVA = {
    "buffers": ("java", ["Buffers"]),
    "jar": ("jar", ["-c", "-f", "scripts.jar", "-C", SCRIPTS, "."]),
}
JAVA_PACKAGE = "openjdk-17-jdk-headless"
ALONE = ["-XX:+UseSerialGC", "-Xint"]


@functools.cache
def classes():
    """The folder with the compiled programs of Java, which goes when this process ends."""
    folder = tempfile.mkdtemp(prefix="skinflint-classes-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = os.path.join(HERE, "programs", "planted", "Buffers.java")
    subprocess.run(["/usr/bin/javac", "-d", folder, source], check=True, timeout=600)
    return folder


def command(name):
    """The command of a program."""
    if name in JAVA:
        tool, arguments = JAVA[name]
        options = [*ALONE, "-cp", classes()] if tool == "java" else [f"-J{option}" for option in ALONE]
        return [f"/usr/bin/{tool}", *options, *arguments]
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
    scripts = [PROGRAMS[name][2] for name in names if name in PROGRAMS]
    packages = ([*INTERPRETERS, *scripts] if scripts else []) + ([JAVA_PACKAGE] if set(names) & set(JAVA) else [])
    found = {package: version(package) for package in packages}
    missing = [package for package, one in found.items() if not one]
    return ", ".join(f"{package} {one or 'absent'}" for package, one in found.items()), missing
