# make demo   set up and show the whole product on a simulated board
# make test   set up, check style and types, run every test
# make bench  timing figures, as ratios measured side by side
# make lint   style and types only

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BUILD  := setup.cfg setup.py pyproject.toml $(wildcard kernels/_sweep.c)
OUT    ?= demo-out

.PHONY: demo test bench lint clean

demo: $(VENV)/.demo
	$(BIN)/jetdvfs demo --out $(OUT)

test: lint
	$(BIN)/python -m pytest

bench: $(VENV)/.test
	$(BIN)/python tests/bench_sweep.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build/types && ln -sfn ../.. build/types/jetdvfs  # mypy finds packages by folder name
	$(BIN)/mypy

# What pip cannot bring. Root installs it; everybody else is told its name once, and goes on with what there is.
$(VENV)/bin/pip:
	@missing=; \
	$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
	$(PYTHON) -c 'import sysconfig, pathlib, sys; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' \
	  || missing="$$missing python3-dev"; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v fusermount3 >/dev/null || missing="$$missing fuse3"; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing system packages:$$missing"; \
	    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing) \
	      >$(or $(TMPDIR),/tmp)/jetdvfs-apt.log 2>&1 \
	      || echo "could not install:$$missing (see $(or $(TMPDIR),/tmp)/jetdvfs-apt.log)" >&2; \
	  else \
	    echo "system packages are missing; install them with: sudo apt-get install$$missing" >&2; \
	  fi; \
	fi
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/pip $(BUILD)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[plot,twin]'
	@touch $@

$(VENV)/.test: $(VENV)/bin/pip $(BUILD)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	@touch $@

clean:
	rm -rf $(VENV) build $(OUT) *.egg-info kernels/*.so
