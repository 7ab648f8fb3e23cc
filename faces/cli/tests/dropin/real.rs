//! Real programs: the same output, to the byte, as on glibc's allocator.
//!
//! R1  What a program writes into files is compared as well, by its checksum on stdout.
//! R2  Every process below the program has the library too: it is inherited.

use skinflint_test_support::need;

use crate::library::{both, both_with, is_long};
use crate::tool::Done;

/// Runs a shell script on both allocators, in folders of their own: the same output and status 0.
#[track_caller]
fn script(text: &str) -> Done {
    script_with(text, &[])
}

#[track_caller]
fn script_with(text: &str, arguments: &[&str]) -> Done {
    let done = both_with("/bin/sh", b"", |bench, command| {
        command
            .args(["-euc", text, "sh"])
            .args(arguments)
            .env("HOME", bench.path("."))
            .env("ROOT", crate::tool::root())
            .env("TIMES", if is_long() { "10" } else { "1" })
            .env_remove("SKINFLINT_RECORDER");
    })
    .same();
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    assert!(!done.stdout.is_empty());
    done
}

#[test]
fn python() {
    let program = "import sys, json, hashlib, random, os\n\
        random.seed(5)\n\
        times = int(os.environ['TIMES'])\n\
        d = {}\n\
        for i in range(60000 * times):\n\
        \x20   d[random.randrange(30000)] = [str(i) * random.randrange(1, 40), {'n': i}]\n\
        \x20   if i % 3 == 0: d.pop(random.randrange(30000), None)\n\
        text = json.dumps(d, sort_keys=True)\n\
        print(len(text), hashlib.sha256(text.encode()).hexdigest())\n\
        print(len(json.loads(text)), sum(len(k) for k in sorted(set(text.split()))))\n";
    for malloc in ["malloc", "default"] {
        let both = both_with("python3", b"", |_, command| {
            command
                .args(["-c", program])
                .env("PYTHONMALLOC", malloc)
                .env("PYTHONHASHSEED", "0")
                .env("TIMES", if is_long() { "20" } else { "1" });
        });
        assert_eq!(both.same().shell_status(), 0);
    }
}

/// Runs modules of Python's own tests: as a whole, they succeed on both. Debian's build carries them.
#[test]
fn pythons_own_tests() {
    if !need::python_module(
        "/usr/bin/python3",
        "test.test_list",
        "apt-get install libpython3.11-testsuite",
    ) {
        return;
    }
    let mut modules = vec![
        "test_list",
        "test_dict",
        "test_json",
        "test_set",
        "test_unicode",
        "test_zlib",
        "test_thread",
        "test_fork1",
    ];
    if is_long() {
        modules.extend([
            "test_threading",
            "test_gc",
            "test_bytes",
            "test_array",
            "test_re",
            "test_pickle",
            "test_memoryview",
            "test_weakref",
            "test_struct",
            "test_ctypes",
            "test_subprocess",
            "test_multiprocessing_fork",
            "test_decimal",
            "test_xml_etree",
            "test_itertools",
            "test_descr",
            "test_io",
            "test_mmap",
            "test_signal",
        ]);
    }
    let pair = both_with("/usr/bin/python3", b"", |_, command| {
        command
            // Some of these judge clocks, which fails on a busy machine: tests that failed are run once more, by
            // themselves (-w).
            .args(["-m", "test", "-q", "-w", "-j0", "--timeout", "600"])
            .args(&modules)
            .env("PYTHONMALLOC", "malloc");
    });
    let verdict = |done: &Done| -> Option<String> {
        let line = done.stdout.lines().rfind(|line| line.contains("result: "));
        // "SUCCESS", "FAILURE", or "FAILURE then" either of them, for the second time.
        line.and_then(|line| line.rsplit(' ').next().map(str::to_owned))
    };
    let glibc = verdict(&pair.glibc);
    assert!(
        glibc.is_some(),
        "apt-get install libpython3.11-testsuite: {:#?}",
        pair.glibc
    );
    assert_eq!(verdict(&pair.ours), glibc, "{:#?}", pair.ours);
    assert_eq!(glibc.as_deref(), Some("SUCCESS"), "{:#?}", pair.ours);
}

#[test]
fn sqlite() {
    script(
        "sqlite3 t.db <<EOF\n\
         create table t(a integer primary key, b text, c blob);\n\
         with recursive n(i) as (values(1) union all select i + 1 from n where i < 40000 * $TIMES)\n\
         insert into t select i, hex(i * 7919 % 10007) || i, zeroblob(i % 900) from n;\n\
         create index ib on t(b);\n\
         delete from t where a % 3 = 0;\n\
         select count(*), sum(length(c)), min(b), max(b) from t;\n\
         select substr(b, 1, 3) p, count(*) from t group by p order by 2 desc, 1 limit 20;\n\
         vacuum;\n\
         pragma integrity_check;\n\
         EOF\n\
         sqlite3 t.db .dump | sha256sum; sha256sum t.db",
    );
}

#[test]
fn perl() {
    if !need::program("perl") {
        return;
    }
    script(
        "perl -e 'srand(7); my %h; for my $i (1..60000*$ENV{TIMES}) { $h{int(rand(20000))} .= chr(65+$i%26) x ($i%50); \
         delete $h{int(rand(20000))} if $i % 4 == 0 } my $n = 0; $n += length $h{$_} for keys %h; \
         my $s = join \",\", map { s/(A+)/length $1/ger } map { $h{$_} } sort keys %h; \
         print scalar(keys %h), \" $n \", length($s), \" \", unpack(\"%32C*\", $s), \"\\n\"'",
    );
}

#[test]
fn ruby() {
    if !need::program("ruby") {
        return;
    }
    script(
        "ruby -e 'r = Random.new(3); h = {}; (60_000 * ENV[\"TIMES\"].to_i).times { |i| \
         h[r.rand(20000)] = (i.to_s * r.rand(1..60)).freeze; h.delete(r.rand(20000)) if i % 4 == 0 }; \
         puts h.size, h.sort.map { |k, v| v.sum }.sum, h.values.map(&:size).minmax.inspect; \
         pid = fork { x = (1..2000).map { |i| \"x\" * i }; exit!(x.size == 2000 ? 0 : 1) }; \
         Process.wait(pid); puts $?.exitstatus; \
         puts 8.times.map { |t| Thread.new { (1..3000).map { |i| (i * t).to_s * 3 }.join.size } }.sum(&:value)'",
    );
}

#[test]
fn node() {
    if !need::program("node") {
        return;
    }
    script(
        "node -e 'const c = require(\"crypto\"), z = require(\"zlib\"); let m = new Map(), s = 1; \
         const rnd = n => (s = (s * 1103515245 + 12345) % 2147483648) % n; \
         for (let i = 0; i < 60000 * process.env.TIMES; i++) { m.set(rnd(20000), Buffer.alloc(rnd(3000), i)); \
         if (i % 4 == 0) m.delete(rnd(20000)); } \
         const h = c.createHash(\"sha256\"); for (const k of [...m.keys()].sort()) h.update(m.get(k)); \
         console.log(m.size, h.digest(\"hex\")); \
         console.log(z.gunzipSync(z.gzipSync(Buffer.alloc(5e6, \"abc\"))).length)'",
    );
}

#[test]
fn git() {
    script(
        "export GIT_AUTHOR_DATE='2020-01-01 00:00 +0000' GIT_COMMITTER_DATE='2020-01-01 00:00 +0000' \
         GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b \
         GIT_CONFIG_NOSYSTEM=1; git init -q -b main one; cd one; \
         for round in $(seq 1 $((6 * TIMES))); do for i in $(seq 1 30); do \
         seq $((round * i)) $((round * i + 400)) > file$i; done; git add .; git commit -qm \"round $round\"; done; \
         git rev-parse HEAD; git log -p | sha256sum; git gc -q; git fsck; cd ..; git clone -q one two; \
         cd two; git blame file7 | sha256sum; git diff HEAD~3 --stat | tail -1; git grep -c 77 | sha256sum",
    );
}

/// The compiler's objects are the same to the byte.
#[test]
fn compilers() {
    script(
        "cat > big.cpp <<'EOF'\n\
         #include <map>\n#include <regex>\n#include <iostream>\n#include <string>\n#include <vector>\n\
         template <int N> struct Deep { std::map<int, std::vector<std::string>> all; Deep<N - 1> next;\n\
         int sum() const { int n = 0; for (auto &e : all) n += e.second.size(); return n + next.sum(); } };\n\
         template <> struct Deep<0> { int sum() const { return 0; } };\n\
         int main() { Deep<60> d; std::regex r(\"a+b\"); return d.sum() + std::regex_match(\"aab\", r); }\n\
         EOF\n\
         g++ -std=c++17 -O1 -g -ffile-prefix-map=\"$PWD\"=. -c big.cpp -o big.o; sha256sum big.o; \
         gcc -O2 -c -o sizes.o -I\"$ROOT/tests/programs\" \"$ROOT/tests/contract/sizes.c\"; sha256sum sizes.o; \
         g++ -o big big.o; ./big || echo $?",
    );
}

/// make, shell, compiler and linker, two at a time.
#[test]
fn a_build() {
    script(
        "cp -r \"$ROOT/tests\" \"$ROOT/include\" .; cd tests/programs; \
         MAKEFLAGS= make -s -j2 OUT=out out/predicted out/family out/forks out/threads out/operators \
         out/exceptions out/libplugin.so; cd out; sha256sum $(ls | grep -v '\\.out$' | LC_ALL=C sort) | \
         cut -d' ' -f3-; ./family; ./operators",
    );
}

#[test]
fn pipes_of_small_programs() {
    if !need::programs(&["awk", "xz", "bash"]) {
        return;
    }
    script(
        "seq 1 $((200000 * TIMES)) | awk '{ print $1 * 7919 % 100003, $1 }' > numbers; \
         sort -n numbers | sha256sum; sort -k1,1 -u --parallel=2 numbers | sha256sum; \
         gzip -c numbers | gzip -dc | sha256sum; xz -T2 -1 -c numbers | xz -dc | sha256sum; \
         sed -E 's/(1+)/<\\1>/g' numbers | sha256sum; tar cf - numbers | tar tf -; \
         bash -c 'declare -A a; for i in {1..3000}; do a[$((i % 700))]+=x$i; done; echo ${#a[@]} ${#a[5]}'",
    );
}

/// Every small program that a script starts pays for the beginning: its output must at least be the same.
#[test]
fn a_shell_full_of_small_programs() {
    let done = both(
        "/bin/sh",
        &[
            "-c",
            "for i in $(seq 1 100); do /bin/echo $i | tr 0-9 a-j; done; ls / | wc -l; env -i /bin/echo bare",
        ],
    );
    assert_eq!(done.same().shell_status(), 0);
}
