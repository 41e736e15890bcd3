# make demo   set up and show the whole product on a simulated board
# make test   set up, run the tests on JOBS cores without the slow ones, after make lint; those of TESTS=FOLDERS alone
# make test-slow   the slow tests: training, many seeds, hundreds of megabytes
# make test-tools  the tests of zoo, soak and fuzz themselves; where they are as last passed, .ci/run leaves them out
# make bench  timing figures, as ratios measured side by side
# make test-jtop  the real jetson-stats service and client on simulated boards; as root
# make soak   (root) SEEDS=2000 seeded scenarios against the real daemon, from SEED=0 on; CYCLES=10000 leases; HOURS=24 of a virtual day; programs while all about them changes
# make fuzz   (root) MINUTES=60 of messages to the daemon that nobody should send, from SEED=0 on
# make test-system  (root) install the service as README says on Debian 12 and 13 with a real systemd, and try it
# make test-system-aarch64  (root) the package on Debian's kernel for arm64 in QEMU: confinement, leases, power cuts
# make deb    a package for this Debian or Ubuntu, in dist/
# make test-release  (root) build a release twice, and from its source archives alone
# make release  (root for other systems than this) wheels, source archives, Debian packages for PLACES, a bill of materials and sums of the last commit, in dist/release; KEY=a key of gpg that signs
# make release-check  the same, built again and compared to the byte
# make profiles  measure and train the shipped profiles again, of BOARDS; in build/campaign, what was measured is kept
# make zoo    hold lists against PyTorch and ONNX Runtime: models of timm, transformers and others in every format, files of wheels; MODELS=regex
# make install, make uninstall   (root) the same without a package, below PREFIX (/usr/local)
# make lint   style, types and language, in an environment of its own with every version pinned
# make docs   the documentation as a site to read without network, into build/docs
# make test-oldest  the tests but the slow ones, with the oldest Python and dependencies admitted
# make test-roots   (root) make demo and make test on fresh Debians, as root and as an ordinary user
# make test-aarch64  (root) build and test on aarch64 under QEMU, results compared to the last bit

PYTHON ?= python3
VENV   ?= .venv
OUT    ?= demo-out
BIN    := $(VENV)/bin
LINT   := build/lint
BUILD  := setup.cfg setup.py pyproject.toml $(wildcard kernels/trees/*.[ch])
BENCHES := calls commands correction decompose growth limits memory missed service starts surfaces sweep
PIP    := $(BIN)/python systemd/install_packages.py
# The daemon's workers write no compiled modules.
COMPILE := $(BIN)/python -m compileall -q daemon kernels profiles

SEEDS   ?= 2000
SEED    ?= 0
TESTS   ?=
JOBS    ?= $(shell nproc)
CYCLES  ?= 10000
HOURS   ?= 24
MINUTES ?= 60
MODELS  ?=
LARGE   := agx-xavier agx-orin-64gb
BOARDS  ?= $(patsubst %-sim,%,$(notdir $(wildcard profiles/bundles/*)))
PREFIX  ?= /usr/local
DESTDIR ?=
# The tests of a file share what is dear to set up, so they stay together.
SPREAD  := -n $(JOBS) --dist loadfile
# The tests of tools run when somebody names their folder, or by `make test-tools`.
QUICK   := not system and not slow$(if $(TESTS),, and not tool)

# The programs that tests start, hundreds of them, would each compile all they import.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-tools soak fuzz profiles zoo zoo-judge zoo-wheels test-oldest test-roots test-jtop test-system test-system-aarch64 test-release test-aarch64 bench lint docs deb release release-check install uninstall clean

demo: $(VENV)/.demo
	@$(BIN)/jetdvfs twin demo --out $(OUT)

# A test runs whatever its types are, and what failed stands last.
test: $(VENV)/.test
	@lint=0; $(if $(TESTS),,$(MAKE) --no-print-directory lint || lint=$$?;) \
	$(BIN)/python -m pytest $(SPREAD) -m '$(QUICK)' $(TESTS) || exit 1; \
	[ $$lint = 0 ] || { echo "make lint failed: see above the tests"; exit 1; }

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest $(SPREAD) -m 'slow and not system' $(TESTS)

test-tools: $(VENV)/.test
	PYTHON=$(abspath $(BIN)/python) tests/system/tools.sh
	@tests/system/tools.sh record

# One scenario alone is one to be told in full: without the endurance.
soak: $(VENV)/.test
	$(BIN)/python -m jetdvfs.tests.soak.run --seed $(SEED) --seeds $(SEEDS) --jobs $(JOBS)
ifneq ($(SEEDS),1)
	$(BIN)/python -m jetdvfs.tests.soak.endurance cycles $(CYCLES)
	$(BIN)/python -m jetdvfs.tests.soak.endurance day $(HOURS)
	$(BIN)/python -m jetdvfs.tests.soak.changing --boards 2
endif

fuzz: $(VENV)/.test
	$(BIN)/python -m jetdvfs.tests.fuzz.socket_calls --seed $(SEED) --minutes $(MINUTES)

profiles: $(VENV)/.test
	@set -e; for board in $(BOARDS); do \
	  rm -rf build/profiles/$$board-sim; \
	  $(BIN)/jetdvfs-lab train --board $$board --simulated $$(echo $(LARGE) | grep -qw -- $$board || echo --quick) \
	    --out build/profiles/$$board-sim --campaign build/campaign; \
	  rm -rf profiles/bundles/$$board-sim; mv build/profiles/$$board-sim profiles/bundles; \
	done

# In a virtual environment of its own. It goes on where it was left; remove build/zoo/results.jsonl to start again.
zoo: build/zoo/.zoo
	build/zoo/bin/python -m jetdvfs.tests.zoo.run --models '$(MODELS)'
	$(if $(MODELS),,build/zoo/bin/python -m jetdvfs.tests.zoo.wheels)

# The model files in wheels alone.
zoo-wheels: build/zoo/.zoo
	build/zoo/bin/python -m jetdvfs.tests.zoo.wheels --files '$(MODELS)'

# What was exported before, listed and judged by the code as it stands: minutes instead of hours.
zoo-judge: build/zoo/.zoo
	build/zoo/bin/python -m jetdvfs.tests.zoo.run --models '$(MODELS)' --judge-again

# In a virtual environment of its own, of the oldest Python if it is here; types are checked as newer releases of the dependencies declare them.
test-oldest:
	PIP_CONSTRAINT=$(CURDIR)/tests/system/oldest.txt $(MAKE) VENV=build/oldest \
	  PYTHON=$$(tests/system/oldest_python.sh || echo $(PYTHON)) build/oldest/.test
	build/oldest/bin/python -m pytest $(SPREAD) -m '$(QUICK)' $(TESTS)

test-roots:
	tests/system/fresh_roots.sh

test-jtop: $(VENV)/.test
	$(PIP) --editable '.[jtop]'
	$(BIN)/python -m pytest tests/daemon/hardware/test_jetson_stats.py

bench: $(VENV)/.test
	@for name in $(BENCHES); do $(BIN)/python tests/bench/$$name.py || exit; done

test-system: $(VENV)/.test
	@tests/system/debian.sh check
	$(BIN)/python -m pytest -m 'system and not release and not emulated' tests/system

test-system-aarch64: $(VENV)/.test
	@$(BIN)/python -m jetdvfs.tests.system.image check
	$(BIN)/python -m pytest -m emulated tests/system

test-release: $(VENV)/.test
	$(BIN)/python -m pytest -m release tests/system

test-aarch64: $(VENV)/.test
	PYTHON=$(abspath $(BIN)/python) tests/system/aarch64.sh
	@tests/system/aarch64.sh record

lint: $(LINT)/.lint
	$(LINT)/bin/ruff check .
	$(LINT)/bin/ruff format --check .
	@mkdir -p build/types && ln -sfn ../.. build/types/jetdvfs  # mypy finds packages by folder name
	$(LINT)/bin/mypy
	$(LINT)/bin/python tests/support/language.py

docs: $(VENV)/.docs
	@$(BIN)/python docs/website.py

# An environment to copy from: the product as it is now, what it needs, and what completion is made with.
PACKING = build/packing$(subst /,-,$(shell command -v $(PYTHON)))
define pack
@$(MAKE) --no-print-directory PYTHON=$(PYTHON) VENV=$(PACKING) $(PACKING)/bin/pip
@echo "installing jetdvfs and what it needs into $(PACKING)"
@rm -rf build/lib* build/temp* build/bdist*
@$(PACKING)/bin/python systemd/install_packages.py '.[package,twin]'
@$(PACKING)/bin/python systemd/install_packages.py --no-deps --quiet $(APART)
endef

RELEASE := build/release
PLACES  ?= bookworm/amd64 trixie/amd64 jammy/amd64 noble/amd64 bookworm/arm64 trixie/arm64 jammy/arm64 noble/arm64

release: $(RELEASE)/.tools
	@KEY='$(KEY)' $(RELEASE)/bin/python systemd/release.py build dist/release $(PLACES)

release-check: release
	@$(RELEASE)/bin/python systemd/release.py check dist/release $(PLACES)

$(RELEASE)/.tools: systemd/release-tools.txt
	@rm -rf $(RELEASE)
	@$(MAKE) --no-print-directory VENV=$(RELEASE) $(RELEASE)/bin/pip
	@echo "installing the tools of a release into $(RELEASE)"
	@$(RELEASE)/bin/python systemd/install_packages.py --no-deps --requirement systemd/release-tools.txt
	@touch $@

APART := ./profiles/twin ./profiles/lab

SYSTEM_RUNS := [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ]

deb: PYTHON = /usr/bin/python3
deb:
	$(pack)
	@$(PACKING)/bin/python systemd/package.py deb dist

install:
	$(pack)
	@$(PACKING)/bin/python systemd/package.py install $(PREFIX) $(DESTDIR)/
	@if [ -z "$(DESTDIR)" ]; then systemd-sysusers && systemd-tmpfiles --create; fi
	@if $(SYSTEM_RUNS); then systemctl daemon-reload && systemctl try-restart jetdvfsd; fi

uninstall:
	@if $(SYSTEM_RUNS); then systemctl disable --now jetdvfsd.socket jetdvfsd.service; fi
	@if [ -z "$(DESTDIR)" ]; then $(PREFIX)/bin/jetdvfs restore; fi
	@$(PYTHON) systemd/package.py remove $(PREFIX) $(DESTDIR)/
	@if [ -z "$(DESTDIR)" ]; then rm -rf /run/jetdvfs /var/lib/jetdvfs; groupdel jetdvfs; fi
	@if $(SYSTEM_RUNS); then systemctl daemon-reload; fi

$(VENV)/.demo: $(VENV)/bin/pip $(BUILD)
	@echo "installing jetdvfs into $(VENV)"
	@$(PIP) --editable '.[plot,twin]'
	@$(COMPILE)
	@touch $@

$(VENV)/.test: $(VENV)/bin/pip $(BUILD)
	@echo "installing jetdvfs and what its tests need into $(VENV)"
	@$(PIP) --editable '.[test]'
	@$(COMPILE)
	@touch $@

# Types are read from the wheels of one Python and one machine, whichever these are: no library is run.
WHEELS := --only-binary=:all: --ignore-requires-python --python-version 3.13 --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64

$(LINT)/.lint: tests/system/lint-tools.txt tests/system/lint-types.txt
	@rm -rf $(LINT)
	@$(MAKE) --no-print-directory VENV=$(LINT) $(LINT)/bin/pip
	@echo "installing the tools for style and types into $(LINT)"
	@$(LINT)/bin/python systemd/install_packages.py --no-deps --requirement tests/system/lint-tools.txt
	@$(LINT)/bin/python systemd/install_packages.py --no-deps --requirement tests/system/lint-types.txt $(WHEELS) \
	  --target "$$($(LINT)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

# Ultralytics asks for an OpenCV with windows, and torchaudio brings a library that a CPU build of torch cannot load: its networks need neither.
build/zoo/.zoo: setup.cfg
	@$(MAKE) --no-print-directory VENV=build/zoo build/zoo/bin/pip
	@echo "installing jetdvfs and the packages whose models are exported into build/zoo"
	@build/zoo/bin/python systemd/install_packages.py --editable '.[zoo]'
	@build/zoo/bin/python systemd/install_packages.py --no-deps ultralytics
	@rm -f build/zoo/lib/python*/site-packages/torchaudio/lib/*.so
	@touch $@

$(VENV)/.docs: $(VENV)/bin/pip $(BUILD)
	@echo "installing jetdvfs and the tools for its documentation into $(VENV)"
	@$(PIP) --editable '.[docs]'
	@touch $@

# What pip cannot bring. Root installs it; everybody else is told the names once and goes on with what there is.
define find_missing
missing=; \
$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
  || missing="$$missing python3-dev"; \
command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
command -v fusermount3 >/dev/null || missing="$$missing fuse3"
endef

APT_LOG := $(or $(TMPDIR),/tmp)/jetdvfs-apt.log

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "needs Python 3.10 or newer as $(PYTHON); name another with: make PYTHON=..." >&2; exit 1; }
	@$(find_missing); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing system packages:$$missing"; export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get update && apt-get install -y --no-install-recommends $$missing; } >$(APT_LOG) 2>&1 \
	    || echo "apt-get failed, see $(APT_LOG)" >&2; \
	  $(find_missing); \
	fi; \
	if [ -n "$$missing" ]; then \
	  echo "system packages are missing; to install them: sudo apt-get install$$missing && make clean" >&2; \
	fi; \
	case "$$missing" in *python3-venv*) exit 1;; esac
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build demo-out *.egg-info kernels/trees/*.so
