//! C++ names as c++filt writes them: names of the standard library, and of a program with every kind of name.
//!
//! ```text
//!   nm -j LIBRARY ──┬─ c++filt ────────┐
//!                   └─ demangle_whole ─┴─ equal
//! ```
//!
//! Needs g++ and binutils (Debian: `apt install g++ binutils`); a test whose tool is missing fails.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use skinflint_symbols::demangle_whole;
use tempfile::TempDir;

fn output(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{shown}: {e}; install it (Debian: g++ binutils)"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {errors}");
    String::from_utf8(output.stdout).expect("names are UTF-8")
}

fn symbols(file: &Path, flags: &[&str]) -> Vec<String> {
    let listed = output(Command::new("nm").args(flags).arg("-j").arg(file));
    let mut names: Vec<String> = listed
        .lines()
        .map(|line| line.split('@').next().unwrap_or(line).to_owned())
        // Suffixes of clones are handled elsewhere (demangle.rs).
        .filter(|name| name.starts_with("_Z") && !name.contains('.'))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the names that c++filt demangles differently from us.
fn unlike(names: &[String]) -> Vec<String> {
    let mut judge = Command::new("c++filt")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("c++filt (Debian: binutils)");
    let mut input = judge.stdin.take().expect("piped");
    let text = names.join("\n") + "\n";
    let feeding = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = judge.wait_with_output().expect("c++filt ends");
    feeding.join().expect("no panic").expect("fed");
    let theirs = String::from_utf8(output.stdout).expect("UTF-8");
    let pairs = names.iter().zip(theirs.lines());
    pairs
        .filter(|(name, theirs)| demangle_whole(name) != *theirs)
        .map(|(name, theirs)| {
            format!(
                "{name}\n  ours   {}\n  theirs {theirs}",
                demangle_whole(name)
            )
        })
        .collect()
}

#[test]
fn the_standard_library() {
    let path = output(Command::new("g++").arg("-print-file-name=libstdc++.so.6"));
    let names = symbols(Path::new(path.trim()), &["-D"]);
    assert!(names.len() > 4_000, "{} names", names.len());
    let unlike = unlike(&names);
    assert!(
        unlike.is_empty(),
        "{} of {}:\n{}",
        unlike.len(),
        names.len(),
        unlike.join("\n")
    );
}

const PROGRAM: &str = r#"
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>
#define KEEP __attribute__((noinline, used))
namespace { struct Hidden { int a; KEEP Hidden(int); KEEP ~Hidden(); KEEP operator int() const; }; }
Hidden::Hidden(int a) : a(a) {} Hidden::~Hidden() {} Hidden::operator int() const { return a; }
struct Foo { int a[4]; KEEP int get(int) const & { return a[0]; } KEEP int get(int) && { return a[1]; }
  template <class T> KEEP operator T() const { return T(); }
  KEEP bool operator<(const Foo &) const { return false; } KEEP void *operator[](int) { return a; }
  template <class T> KEEP T then(T t) volatile { return t; } };
template <class... T> KEEP int many(T &&...t) { return sizeof...(t); }
template <class F, class... A> KEEP auto call(F f, A... a) -> decltype(f(a...)) { return f(a...); }
template <class T> KEEP typename std::enable_if<!std::is_array<T>::value && (sizeof(T) > 2), T>::type pick(T t) { return t; }
template <int N, unsigned long M, bool B, char C> KEEP int (&grid(int (&a)[N][3]))[N][3] { return a; }
template <void (*F)(int)> KEEP void through() { F(3); }
KEEP void plain(int) {}
KEEP int (*pointer(int (*f)(long, ...)))(long, ...) { return f; }
KEEP void member(int (Foo::*f)(int) const &, int Foo::*d) {}
[[gnu::abi_tag("one", "two")]] KEEP std::string tagged(std::vector<std::string> v) { return v[0]; }
template <template <class...> class C, class T> KEEP C<T> fill(T t) { return C<T>(3, t); }
KEEP decltype(auto) spare(std::map<int, std::function<void(int)>> &m) { return (m[1]); }
template <class T> KEEP auto lambda(T t) { return [=](auto x, T y) KEEP { return t + x + y; }; }
KEEP __int128 wide(unsigned char, long double, char16_t, std::nullptr_t, const volatile void *__restrict) { return 1; }
KEEP unsigned operator"" _kib(unsigned long long v) { return v; }
template <class T, T... V> KEEP int sequence(std::integer_sequence<T, V...>) { return sizeof...(V); }
enum class Color { red, green }; template <Color C> KEEP int color() { return int(C); }
template <class... T> KEEP auto sum(T... t) -> std::integral_constant<int, (sizeof(T) + ... + 0)> { return {}; }
int main() {
  Hidden h(3); Foo f{}; int a[2][3] = {}; int x = 3; const int y = 4;
  std::shared_ptr<Foo> p = std::make_shared<Foo>(); auto q = std::make_unique<Foo[]>(3);
  std::unordered_map<std::string, std::vector<Foo>> m; m["a"].resize(3); std::tuple<int, std::string> t(1, "b");
  auto l = lambda(1L); struct Local { KEEP static int in(std::string s) { auto e = [](int i) KEEP { return i; }; return e(s.size()); } };
  return int(h) + f.get(1) + Foo().get(2) + int(f) + (f < f) + (f[0] != 0) + f.then('c') + many(x, y, std::string(), 3.5f) + many()
    + call([](int a, char) { return a; }, 1, 'c') + pick(3) + grid<2, 7, true, 'x'>(a)[0][0] + (through<plain>(), 0) + (pointer(0) == 0)
    + (member(&Foo::get, nullptr), 0) + tagged({"a"}).size() + fill<std::vector>(1.5).size() + l(1, 2L) + Local::in("c") + int(wide(1, 2, u'c', nullptr, 0))
    + 3_kib + sequence(std::make_integer_sequence<short, 3>()) + color<Color::green>() + sum(1, 2L).value + q[0].a[0] + p->a[0];
}
"#;

#[test]
fn a_program_of_every_kind_of_name() {
    let dir = TempDir::new().expect("temporary directory");
    let source = dir.path().join("names.cpp");
    std::fs::write(&source, PROGRAM).expect("source");
    for standard in ["-std=c++17", "-std=c++20"] {
        let object = dir.path().join("names.o");
        output(
            Command::new("g++")
                .args([standard, "-O0", "-w", "-c", "-o"])
                .arg(&object)
                .arg(&source),
        );
        let names = symbols(&object, &[]);
        assert!(names.len() > 300, "{} names", names.len());
        let unlike = unlike(&names);
        assert!(
            unlike.is_empty(),
            "{} of {}:\n{}",
            unlike.len(),
            names.len(),
            unlike.join("\n")
        );
    }
}
