# make demo: trains on two Ray replicas. make test: lint, types, tests, notebooks; of slow tests one in six, drawn by
# the seed. make test-fast: tests that start no Ray, kill nothing, compile no kernels of a GPU and draw no nets.
# make test-all: all slow tests.
# make test-gpu: on a GPU.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
PYTEST := $(RUN)/python -m pytest -q
# Files of tests run side by side, one more than cores where tests wait for processes. But attacks fill the host:
# one after the other.
BESIDE := $(PYTEST) --dist loadfile --no-loadscope-reorder
# Python compiles what is imported first, and must keep it: pip would compile all of each package, for half a minute.
INSTALL := $(RUN)/python -m pip install --quiet --no-compile --editable
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint types checks all-checks test-fast test-all test-gpu clean

demo: $(VENV)/.demo
	$(RUN)/rowlock demo

test: lint
	$(MAKE) --no-print-directory --jobs 2 types checks
	$(PYTEST) -m drawn tests/attack

lint: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check --quiet .
	$(RUN)/python -m tests.house.sizes

types: $(VENV)/.dev
	$(RUN)/mypy

checks: $(VENV)/.dev
	$(BESIDE) -n 3 -m "not slow or drawn" --ignore=tests/attack

test-fast: $(VENV)/.dev
	$(BESIDE) -n 2 -m "not slow and not ray and not kills and not cuda" --ignore-glob="*/test_random_*"

# One run of them: what the tests of a file share is collected, compiled and started once. Slow tests have the
# cases of those that are marked "some".
all-checks: $(VENV)/.dev
	$(BESIDE) -n 3 -m "not some" --ignore=tests/attack

test-all: lint
	$(MAKE) --no-print-directory --jobs 2 types all-checks
	$(PYTEST) tests/attack

# Where an interpreter has CuPy, nothing is installed.
test-gpu:
	@if $(PYTHON) -c "import cupy, pydantic, pytest" 2>/dev/null; then $(PYTHON) -m tests.gpu.run; \
	else $(MAKE) --no-print-directory $(VENV)/.gpu && $(RUN)/python -m tests.gpu.run; fi

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) '.[dev]'
	touch $@ $(VENV)/.demo

$(VENV)/.gpu: pyproject.toml | $(VENV)/bin/python
	$(INSTALL) '.[dev,gpu]'
	touch $@ $(VENV)/.dev $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist runs *.egg-info
