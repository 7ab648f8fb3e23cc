//! Builds the files that one `skinflint` carries, and packs them for `carried.rs`.
//!
//! ```text
//!   feature `carry`, release ─► cargo build --release -p skinflint-record-so … ─► target/release/parts/release/*
//!        ─► debug information taken off (FILE.debug beside it) ─► zlib, SHA-256 ─► OUT_DIR/carried_files.rs
//!   anything else ─► an empty list
//! ```
//!
//! B1  What is carried is built from the sources that the program is built from, in the same command: a carried recorder
//!     of another version would speak another protocol.
//! B2  A program of musl carries what programs of glibc load: no loader of musl can take our libraries.
//! B3  Where the sources of the other crates are not there (a package of this crate alone), the list is empty: the
//!     program then looks for the files beside itself, as before.
//!
//! Cargo has no dependency of a program on libraries that are loaded at run time (artifact dependencies are unstable).
//! As build dependencies they would be built for the build script: with unwinding, which a library without `std` cannot
//! have, and unoptimized. A section added to the finished file would not be there after `cargo install`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// The packages, and the file that each builds.
const PARTS: [(&str, &str); 5] = [
    ("skinflint-record-so", "libskinflint_record.so"),
    ("skinflint-malloc-so", "libskinflint.so"),
    ("skinflint-probe-so", "libskinflint_probe.so"),
    ("skinflint-replay", "skinflint-replay"),
    ("skinflint-reporters-so", "libskinflint_report.so"),
];

/// What the parts are made of, from the root of the workspace (tests/sources.rs holds that none is missing).
const SOURCES: [&str; 15] = [
    "Cargo.toml",
    "Cargo.lock",
    "ground/base",
    "ground/frames",
    "ground/procfs",
    "ground/reporters",
    "ground/sizes",
    "ground/unwind",
    "engines/alloc",
    "engines/malloc-so",
    "engines/pages",
    "lab/replay",
    "record/probe-so",
    "record/record-so",
    "record/reporters-so",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SKINFLINT_CARRY");
    let out = PathBuf::from(variable("OUT_DIR"));
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    let is_wanted = std::env::var_os("CARGO_FEATURE_CARRY").is_some()
        && variable("PROFILE") == "release"
        && std::env::var_os("SKINFLINT_CARRY").is_none_or(|value| value != "0");
    let files = if is_wanted && root.join(SOURCES[2]).is_dir() {
        for source in SOURCES {
            println!("cargo::rerun-if-changed={}", root.join(source).display());
        }
        pack(&built(&root, &out), &out)
    } else {
        String::new()
    };
    let key: [u8; 32] = Sha256::digest(&files).into();
    let key = key
        .iter()
        .take(8)
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let list = format!(
        "/// Tells these files from those of any other build.\nconst KEY: &str = {key:?};\n\
         /// What this program carries.\nstatic FILES: &[File] = &[\n{files}];\n"
    );
    std::fs::write(out.join("carried_files.rs"), list).expect("OUT_DIR can be written");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Builds the parts, and returns their folder. The target folder is one of its own: the command that waits for us holds
/// the lock of the other.
fn built(root: &Path, out: &Path) -> PathBuf {
    let profile = out.ancestors().nth(3).expect("…/build/PACKAGE-HASH/out");
    let folder = profile.join("parts");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(root)
        .args(["build", "--release", "--locked", "--target-dir"]);
    cargo.arg(&folder);
    // B2.
    let (host, target) = (
        variable("HOST"),
        variable("TARGET").replace("-musl", "-gnu"),
    );
    let mut release = folder.join("release");
    if host != target {
        cargo.args(["--target", &target]);
        release = folder.join(&target).join("release");
    }
    for (package, _) in PARTS {
        cargo.args(["-p", package]);
    }
    // Of the outer command: a wrapper of clippy's, features, and what names this package.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let of_outer = [
            "RUSTC_WORKSPACE_WRAPPER",
            "OUT_DIR",
            "PROFILE",
            "OPT_LEVEL",
            "DEBUG",
        ];
        if of_outer.contains(&name.as_str())
            || name.starts_with("CARGO_FEATURE_")
            || name.starts_with("CARGO_CFG_")
        {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status().expect("cargo starts");
    assert!(
        status.success(),
        "{cargo:?}: {status}; SKINFLINT_CARRY=0 builds a program that carries nothing"
    );
    release
}

/// Strips and compresses the parts. Returns their lines for the list.
fn pack(release: &Path, out: &Path) -> String {
    let mut lines = String::new();
    for (_, name) in PARTS {
        let bytes = stripped(&release.join(name), out);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&bytes).expect("to memory");
        let packed = zlib.finish().expect("to memory");
        std::fs::write(out.join(format!("{name}.z")), packed).expect("OUT_DIR can be written");
        let hash: [u8; 32] = Sha256::digest(&bytes).into();
        let length = bytes.len();
        writeln!(
            lines,
            "    File {{ name: {name:?}, bytes: {length}, sha256: {hash:?}, zlib: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.z\")) }},"
        )
        .expect("to memory");
    }
    lines
}

/// Returns a file without its debug information, which goes to `FILE.debug` beside it. Without binutils the file is
/// carried as it is.
fn stripped(file: &Path, out: &Path) -> Vec<u8> {
    let bytes = |path: &Path| {
        std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let name = file
        .file_name()
        .expect("a file")
        .to_string_lossy()
        .into_owned();
    let debug = file.with_file_name(format!("{name}.debug"));
    let thin = out.join(&name);
    let objcopy = |arguments: &[&str], from: &Path, to: &Path| {
        let status = Command::new("objcopy")
            .args(arguments)
            .args([from, to])
            .status();
        status.is_ok_and(|status| status.success())
    };
    let link = format!("--add-gnu-debuglink={}", debug.display());
    if objcopy(&["--only-keep-debug"], file, &debug)
        && objcopy(&["--strip-all", &link], file, &thin)
    {
        return bytes(&thin);
    }
    println!(
        "cargo::warning={name} is carried with its debug information: objcopy (binutils) cannot be run"
    );
    bytes(file)
}
