#!/bin/sh
# need.sh COMMAND:PACKAGE...   makes sure that each command exists, each library (a name with
#                              .so in it), and each file (a path).
#
# Root on a system with apt-get: what is missing is installed. Otherwise: prints the one line that does it,
# and fails. cargo is never installed from a package when a newer toolchain could be meant: it is only named.
set -eu

# Whether a command, a library or a file is there.
has() {
    case "$1" in
    /*) test -e "$1" ;;
    *.so*) PATH="$PATH:/sbin:/usr/sbin" ldconfig -p | grep -q "$1 " ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

packages=""
for pair in "$@"; do
    has "${pair%%:*}" && continue
    if [ "${pair##*:}" = cargo ]; then
        echo "missing: cargo. Install Rust 1.90 or later: https://rustup.rs" >&2
        exit 1
    fi
    packages="$packages ${pair##*:}"
done
[ -n "$packages" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "missing:$packages. Run: sudo apt-get install -y$packages" >&2
    exit 1
fi
echo "installing:$packages" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # the list is meant to be split
apt-get install -y --no-install-recommends $packages >/dev/null 2>&1 ||
    { apt-get update >/dev/null && apt-get install -y --no-install-recommends $packages >/dev/null; }
