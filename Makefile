# The verbs a person types. `make` alone lists them, in the groups that their comments name.

SHELL       := /bin/bash
CARGO       ?= cargo
PYTHON      ?= python3
# One selection of packages for all development builds: another one may have other features, and builds half of the workspace anew.
DEV         := --locked --workspace
PREFIX      ?= /usr/local
DESTDIR     ?=
UNITDIR     ?= $(PREFIX)/lib/systemd/system
TARGET      := $(or $(CARGO_TARGET_DIR),target)
# What `make install` installs.
BINARY      ?= $(TARGET)/release/belay
# The binary that `make deb` packs, unless BINARY= names one.
DEB_BINARY  := $(if $(filter file,$(origin BINARY)),$(TARGET)/dist/belay,$(BINARY))
# What `make static` builds: musl where its target and its C compiler are installed, else the GNU C library.
PROFILE     ?= dist
MACHINE     := $(shell uname -m)
MUSL         = $(MACHINE)-unknown-linux-musl
STATIC_TARGET ?= $(if $(and $(wildcard $(shell rustc --print sysroot)/lib/rustlib/$(MUSL)),$(shell command -v musl-gcc)),$(MUSL),$(MACHINE)-unknown-linux-gnu)
TOOLS       := $(CURDIR)/build/tools
DENY        := cargo-deny
DENY_VERSION := 0.20.2
# The local model's port: where `belay run` looks for llama.cpp by itself.
PORT        ?= 8080

export PATH := $(TOOLS)/bin:$(PATH)

.DEFAULT_GOAL := help

# The folder of this file: `make -f FOLDER/Makefile help` runs in another one.
HERE        := $(dir $(firstword $(MAKEFILE_LIST)))

.PHONY: help
help: ## use: This list
	@if [ -t 1 ] && [ -z "$$NO_COLOR" ] && [ "$${TERM:-dumb}" != dumb ]; then colour=1; else colour=0; fi; \
	  echo 'make VERB [NAME=VALUE...]; begin with `make run`'; \
	  for group in use develop measure; do echo; awk -v group=$$group -v colour=$$colour -f '$(HERE)tests/gate/help.awk' '$(firstword $(MAKEFILE_LIST))'; done

.PHONY: run
run: ## use: Build and start the daemon here: stdin, and HTTP on loopback (ARGS="--set llm.provider=rehearsal")
	@test -x $(TARGET)/debug/belay || echo 'make run: the first build takes some minutes; cargo shows how far it is. README.md says what it costs.'
	$(CARGO) build $(DEV) --bin belay
	@exec $(TARGET)/debug/belay run $(ARGS)

.PHONY: release
release: ## use: Build the fast binary: target/release/belay
	$(CARGO) build --locked --release -p belay-daemon

.PHONY: small
small: ## use: Build without the parts that a build may leave out (belay --version --long names them): target/release/belay-small
	$(CARGO) build --locked --release -p belay-daemon --no-default-features --features small --bin belay-small

.PHONY: dist
dist: ## use: Build the smaller and faster binary for packages, in about twice the time: target/dist/belay
	$(CARGO) build --locked --profile dist -p belay-daemon

# An explicit target keeps the flag away from build scripts and procedural macros, which cannot be linked with it.
.PHONY: static
static: ## use: Build a static binary: target/MACHINE-unknown-linux-gnu/dist/belay (PROFILE=dist|release|dev, STATIC_TARGET=)
	RUSTFLAGS="$(RUSTFLAGS) -C target-feature=+crt-static" $(CARGO) build --locked --profile $(PROFILE) --target $(STATIC_TARGET) -p belay-daemon --bin belay
	@echo $(TARGET)/$(STATIC_TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/belay

.PHONY: test
test: ## develop: Run every test; the last line counts them (no key, no model; QUICK=1 needs no packages and no root, V=1 names each test, ALL=1 runs also what cannot have changed, FLAKY=fail)
	@$(PYTHON) tests/run.py $(if $(QUICK),--quick) $(if $(V),--verbose) $(if $(ALL),--all) $(if $(FLAKY),--flaky=$(FLAKY))

.PHONY: flaky
flaky: ## develop: Run every suite under load and on one processor, and name the tests that ever failed (hours; MINUTES=30, ARGS="--only outer_loop")
	@$(PYTHON) tests/flaky.py $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

.PHONY: check
check: check-code deny ## develop: Format, clippy, docs, licences, scripts

# All checks but the one whose tool is compiled first.
.PHONY: check-code
check-code: fmt-check lint docs scripts-check

.PHONY: fmt
fmt: ## develop: Format the code
	$(CARGO) fmt --all

.PHONY: fmt-check
fmt-check:
	$(CARGO) fmt --all --check

# The channel e-mail is in no default build, so it is checked by itself.
.PHONY: lint
lint:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked --package belay-mail --features client --all-targets -- -D warnings

# Has `cargo doc` check the libraries as `make lint` does, whose results it then finds: these are what cargo-clippy sets for `-D warnings`.
# With other ones it would check each library once more.
CLIPPY_DRIVER = $(shell rustc --print sysroot)/bin/clippy-driver
AS_LINT       = $(if $(wildcard $(CLIPPY_DRIVER)),RUSTC_WORKSPACE_WRAPPER=$(CLIPPY_DRIVER) CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__)

# Private parts too, since whoever reads this works on it: overviews link to private modules.
.PHONY: docs
docs: ## develop: Build the documentation of the code, private parts too: target/doc
	$(AS_LINT) RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --locked --workspace --no-deps --document-private-items

.PHONY: site
site: ## develop: Build the documentation as web pages with a search: build/site/index.html
	@rm -rf build/site
	$(CARGO) run --locked --quiet -p belay-site -- build/site

# Compiled once, without optimisation and debug information: a few minutes.
.PHONY: deny
deny:
	@$(DENY) --version >/dev/null 2>&1 || CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install $(DENY) --version $(DENY_VERSION) --locked --debug --root $(TOOLS)
	$(DENY) --locked check --hide-inclusion-graph bans licenses sources

.PHONY: scripts-check
scripts-check:
	@for f in .ci/run deploy/deb/*.sh deploy/image/*.sh deploy/local-model/*.sh; do bash -n "$$f" || exit 1; done
	@$(PYTHON) -c 'import ast, pathlib; [ast.parse(p.read_bytes(), str(p)) for p in pathlib.Path("tests").rglob("*.py")]'
	@$(PYTHON) -m doctest tests/soak.py tests/waiting.py tests/changelog.py tests/sizes/elf.py
	@cd tests && $(PYTHON) -m doctest sizes/table.py
	@$(PYTHON) tests/changelog.py --check
	@cd tests && $(PYTHON) -m unittest discover --quiet --start-directory gate --top-level-directory . --pattern '*_test.py'

.PHONY: golden
golden: ## develop: Rewrite the golden transcripts from what the code does now; then read the diff as carefully as code
	BELAY_UPDATE_GOLDEN=1 $(CARGO) test --locked --workspace
	@git --no-pager diff --stat -- '*/tests/golden/*'

.PHONY: changelog
changelog: ## develop: Print what the notes in docs/changes say (VERSION=1.2.3 writes it into CHANGELOG.md and removes them)
	@$(PYTHON) tests/changelog.py $(VERSION)

.PHONY: bench
bench: ## measure: Measure the release build against a scripted model (QUICK=1, JSON=1, SAVE=NAME, AGAINST=NAME, ARGS="--only stops")
	$(CARGO) build --locked --release -p belay-daemon -p belay-tests --bin belay --bin belay-bench
	@$(TARGET)/release/belay-bench --belay $(TARGET)/release/belay $(if $(QUICK),--quick) $(if $(JSON),--json) $(if $(SAVE),--save $(SAVE)) $(if $(AGAINST),--against $(AGAINST)) $(ARGS)

.PHONY: budget
budget: ## measure: Count what fixed scripts cost the daemon, and compare with tests/budget/table.toml (UPDATE=1 writes it, JSON=1)
	$(CARGO) build $(DEV) --bin belay-budget --bin belay
	@$(TARGET)/debug/belay-budget $(if $(UPDATE),--update) $(if $(JSON),--json) $(ARGS)
	@$(if $(JSON),,$(PYTHON) tests/sizes/main.py --belay $(TARGET)/debug/belay $(if $(UPDATE),--update,--check))

.PHONY: sizes
sizes: ## measure: Print how large the full and the smallest build are, by crate (UPDATE=1 writes tests/sizes/table.json, JSON=1, BUILDS=1 times builds: an hour of processor time)
	$(CARGO) build $(DEV) --bin belay
	$(CARGO) build $(DEV) --no-default-features --features belay-daemon/small --bin belay-small
	@$(PYTHON) tests/sizes/main.py --belay $(TARGET)/debug/belay $(if $(UPDATE),--update) $(if $(JSON),--json) $(if $(BUILDS),--builds) $(ARGS)

.PHONY: bench-stops
bench-stops: ## measure: Measure the stop rules: time per event, and chanting detection as a ratio to a plain scan of the same text
	$(CARGO) bench --locked -p belay-agent-loop --bench stops

.PHONY: brakes
brakes: ## measure: Stop processes of every evil kind, and print what is left and how long it took (STOPS=10000, TIMES=off)
	$(CARGO) build $(DEV) --bin belay-brakes
	@$(TARGET)/debug/belay-brakes --stops $(or $(STOPS),10000) $(if $(TIMES),--times $(TIMES)) $(ARGS)

.PHONY: soak
soak: ## measure: Watch a daemon under load for MINUTES=30, then run the long measurements (none begins after MINUTES more; without it, all do)
	@$(PYTHON) tests/soak.py $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: night
night: ## develop: Have nights of crashes with 200 routines and 50 jobs, and print their ledgers (SEEDS=20: so many; SEEDS=7,9: those)
	@BELAY_NIGHTS=$(or $(SEEDS),1) $(CARGO) test $(DEV) --quiet --test outer_loop -- --nocapture after_a_night

# The program has a name of its own, and is no daemon for people: it kills itself where BELAY_CRASH says.
.PHONY: crash
crash: ## develop: Kill daemons at named points, judge from outside what was lost or done twice (KILLS=10000, SEED=1, JOURNAL=FILE continues an interrupted run, ARGS="--only POINT --json"; 10,000 take 20 minutes on two idle cores)
	$(CARGO) build $(DEV) --features belay-daemon/crash-points --bin belay-crash-points
	@$(PYTHON) tests/crash/main.py --belay $(TARGET)/debug/belay-crash-points --kills $(or $(KILLS),10000) --seed $(or $(SEED),1) $(if $(JOURNAL),--journal $(JOURNAL)) $(ARGS)

.PHONY: cluster
cluster: ## develop: Play faults against three daemons over one PostgreSQL, judge from outside what was lost or done twice (FAULTS=200, SEED=1, MINUTES=60, JSON=1, ARGS="--alone, --only KIND, --round-robin, --markdown, --falsify")
	$(CARGO) build $(DEV) --bin belay
	@$(PYTHON) tests/cluster/cluster.py --belay $(TARGET)/debug/belay --faults $(or $(FAULTS),$(KILLS),200) --seed $(or $(SEED),1) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(JSON),--json) $(ARGS)

# A release build is used if there is one: the first of these that exists.
.PHONY: cluster-speed
cluster-speed: ## measure: Measure messages over SQLite, PostgreSQL and one to three nodes in one run, and count round trips (ARGS="--seconds 4 --rounds 5 --only NAME", JSON=1)
	@test -x $(TARGET)/release/belay || $(CARGO) build $(DEV) --bin belay
	@$(PYTHON) tests/cluster/speed.py --belay $(firstword $(wildcard $(TARGET)/release/belay) $(TARGET)/debug/belay) $(if $(JSON),--json) $(ARGS)

.PHONY: cluster-scale
cluster-scale: ## measure: Measure what many sessions and nodes cost one PostgreSQL: sizes, takeovers, writers side by side, leases (ARGS="--sessions 100000 --nodes 100")
	$(CARGO) build $(DEV) --example takeover_cost
	@$(PYTHON) tests/cluster/scale.py --cost $(TARGET)/debug/examples/takeover_cost $(ARGS)

.PHONY: stopbench
stopbench: ## measure: Judge tests/stopbench and mutated copies by our rules and others, print the table, and without ARGS the delays by kind (ARGS="--without all", "--failures")
	$(CARGO) build $(DEV) --bin belay-stopbench
	@$(TARGET)/debug/belay-stopbench $(ARGS)
	@$(if $(ARGS),,$(PYTHON) tests/stopbench_chart.py --bin $(TARGET)/debug/belay-stopbench)

.PHONY: stopbench-real
RUNS ?= ../shared/real-runs
stopbench-real: ## measure: Judge recordings of real agents by our rules and others (RUNS=DIRECTORY; ARGS="--ablation, --failures, --json")
	$(CARGO) build $(DEV) --bin belay-stopbench
	@python3 tests/stopbench_real.py --bin $(TARGET)/debug/belay-stopbench $(RUNS) $(ARGS)

# Its figures depend on the model, so it is no test.
.PHONY: feedback
feedback: ## measure: Measure whether the feedback of a strike helps a local model out of ten scripted loops (start it by `make local-model`; ARGS="--seeds 8, --model URL, --only NAME, --log FILE")
	$(CARGO) build $(DEV) --bin belay
	@$(PYTHON) tests/feedback/feedback.py --belay $(TARGET)/debug/belay $(ARGS)

# Its figures depend on the model, so it is no test.
.PHONY: tool-choice
tool-choice: ## measure: Ask the model at REAL_LLM_URL for the tool of 70 requests (make local-model starts one; AGAINST=BINARY or the recorded result beside it, JSON=1, SAVE=1)
	$(CARGO) build $(DEV) --bin belay
	@$(PYTHON) tests/toolchoice/main.py --belay $(TARGET)/debug/belay $(if $(AGAINST),--against $(AGAINST)) $(if $(JSON),--json) $(if $(SAVE),--save) $(ARGS)

# The packages take 2 GB and some minutes to install, so it is no test.
.PHONY: clients
clients: ## develop: Run the newest clients of the OpenAI-compatible API against a daemon, and print what works (JSON=1, ARGS="--markdown aider gradio"; installs 2 GB into build/)
	$(CARGO) build $(DEV) --bin belay
	@$(PYTHON) tests/clients/table/run.py --belay $(TARGET)/debug/belay $(if $(JSON),--json) $(ARGS)

# It takes 8 GB and some minutes to install, so it is no test.
.PHONY: open-webui
open-webui: ## develop: Chat with Belay in a real Open WebUI with its defaults, in Chromium (installs 8 GB into build/open-webui; needs Python 3.11 or 3.12)
	$(CARGO) build $(DEV) --bin belay
	@test -x build/open-webui/venv/bin/open-webui || { $(PYTHON) -m venv build/open-webui/venv && \
	    build/open-webui/venv/bin/pip install --quiet open-webui==0.12.4 playwright==1.65.2; }
	@BELAY_BIN=$(TARGET)/debug/belay build/open-webui/venv/bin/python tests/clients/open_webui.py build/open-webui

.PHONY: injection
injection: ## develop: Have a model obey every hostile text of tests/injection, and count what it achieves (MORE=1 names each item)
	$(CARGO) build $(DEV) --bin belay
	@BELAY_MORE=$(MORE) $(CARGO) test $(DEV) --quiet --test scenarios injection:: -- --nocapture --test-threads 1

.PHONY: exposure
exposure: ## measure: Have systemd rate the service, with and without commands (0 is best)
	@$(PYTHON) tests/exposure.py

.PHONY: service
service: ## develop: Boot a machine with the installed service in it, and test it as an operator would (root; ARGS="NAME…")
	$(CARGO) build $(DEV) --bin belay
	@BELAY_BIN=$(TARGET)/debug/belay $(PYTHON) tests/service/service.py $(ARGS)

build/console/node_modules: tests/console/package-lock.json
	install -d build/console && cp tests/console/package.json $< build/console
	cd build/console && npm ci --ignore-scripts --no-audit --no-fund && touch node_modules

.PHONY: console
console: build/console/node_modules ## develop: Copy the libraries of the console's pages from their packages (tests/console/package.json; Node)
	cp build/console/node_modules/htm/preact/standalone.module.js crates/console/assets/vendor/preact.js
	cp build/console/node_modules/marked/lib/marked.esm.js crates/console/assets/vendor/marked.js

.PHONY: console-test
console-test: build/console/node_modules ## develop: Open the console of a real daemon in Chromium (ARGS="PART OF A NAME"; Node and chromium)
	$(CARGO) build $(DEV) --bin belay
	@BELAY_BIN=$(TARGET)/debug/belay node tests/console/run.mjs $(ARGS)

.PHONY: matrix
matrix: ## develop: Answer people on Matrix with a real homeserver, which is judge (ARGS="PART OF A NAME"; installs Synapse: 242 MB, half a minute)
	$(CARGO) build $(DEV) --features belay-daemon/crash-points --bin belay-crash-points
	@$(PYTHON) tests/matrix/main.py --belay $(TARGET)/debug/belay-crash-points $(ARGS)

.PHONY: mail
mail: ## develop: Answer people by e-mail with a real IMAP server, which is judge (ARGS="PART OF A NAME"; installs Dovecot and aiosmtpd)
	$(CARGO) build $(DEV) --features belay-daemon/crash-points,belay-daemon/mail --bin belay-crash-points
	$(CARGO) test --locked --quiet -p belay-mail --features client --lib
	@$(PYTHON) tests/mail/main.py --belay $(TARGET)/debug/belay-crash-points $(ARGS)

.PHONY: screenshots
screenshots: build/console/node_modules ## develop: Write the pictures of the console: docs/images/console-*.png (Node and chromium; pngquant makes them small)
	$(CARGO) build $(DEV) --bin belay
	@BELAY_BIN=$(TARGET)/debug/belay node tests/console/screenshots.mjs

.PHONY: console-speed
console-speed: build/console/node_modules ## measure: Measure the console against the release build (SECONDS=20; Node and chromium)
	$(CARGO) build --locked --release -p belay-daemon
	@BELAY_BIN=$(TARGET)/release/belay node tests/console/speed.mjs

.PHONY: demo
demo: ## use: A real local model answers over stdin, HTTP, OpenAI-compatible HTTP and Telegram
	$(CARGO) build $(DEV) --bin belay
	@$(PYTHON) tests/demo/demo.py --belay $(TARGET)/debug/belay

.PHONY: local-model
local-model: ## use: Start a real small model on 127.0.0.1:8080 (PORT=…); the first time compiles for some minutes
	@deploy/local-model/start.sh build/local-model $(PORT) >/dev/null

.PHONY: local-model-stop
local-model-stop: ## use: Stop it
	@deploy/local-model/stop.sh build/local-model

.PHONY: install
install: ## use: Install binary, systemd unit, completions and man pages (PREFIX=/usr/local, DESTDIR=, BINARY=); run `make release` first
	@test -x $(BINARY) || { echo "make install: there is no $(BINARY) yet; run \`make release\` first" >&2; exit 1; }
	install -Dm755 $(BINARY) $(DESTDIR)$(PREFIX)/bin/belay
	install -d $(DESTDIR)$(UNITDIR)
	sed 's|^ExecStart=[^ ]*/belay|ExecStart=$(PREFIX)/bin/belay|' deploy/belay.service >$(DESTDIR)$(UNITDIR)/belay.service
	chmod 644 $(DESTDIR)$(UNITDIR)/belay.service
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(BINARY) completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/belay
	$(BINARY) completions zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_belay
	$(BINARY) completions fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/belay.fish
	$(BINARY) man --dir $(DESTDIR)$(PREFIX)/share/man/man1
	chmod 644 $(DESTDIR)$(PREFIX)/share/man/man1/belay*.1

# The installed binary names the man pages it has, so that no page of another program is removed.
.PHONY: uninstall
uninstall: ## use: Remove what `make install` installed (the same PREFIX= and DESTDIR=); settings and data stay
	@test -x $(DESTDIR)$(PREFIX)/bin/belay || { echo "make uninstall: there is no $(DESTDIR)$(PREFIX)/bin/belay; name the PREFIX= and DESTDIR= of the installation" >&2; exit 1; }
	@pages=$$(mktemp -d) && trap 'rm -rf "$$pages"' EXIT && $(DESTDIR)$(PREFIX)/bin/belay man --dir "$$pages" && \
	  for page in "$$pages"/*.1; do rm -f "$(DESTDIR)$(PREFIX)/share/man/man1/$${page##*/}"; done
	rm -f $(DESTDIR)$(UNITDIR)/belay.service
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/belay $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_belay
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/belay.fish
	rm -f $(DESTDIR)$(PREFIX)/bin/belay

.PHONY: deb
deb: ## develop: Build a Debian package into build/deb (BINARY=target/dist/belay, COMPRESSION=xz); run `make dist` first
	@COMPRESSION=$(or $(COMPRESSION),xz) deploy/deb/build.sh $(DEB_BINARY) build/deb

.PHONY: image
image: ## develop: Build an OCI image without a container daemon: build/image/oci (root; BINARY=); run `make release` first
	deploy/image/build.sh $(BINARY) build/image/oci

.PHONY: dist-files
dist-files: ## develop: Write a bill of materials (CycloneDX) and SHA256SUMS beside what is in build/dist (Python 3.11)
	$(PYTHON) deploy/dist-files.py build/dist

.PHONY: clean
clean: ## use: Remove what was built; the local model and the tools stay (build/)
	$(CARGO) clean
	rm -rf build/clients build/anthropic build/client-table build/generators build/generated build/bench build/demo build/websocket build/typescript build/node build/console
