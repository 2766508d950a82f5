# make demo: trains on two Ray replicas. make test: lint, types, tests, notebooks. make test-fast: tests that start
# no Ray, kill nothing, compile no kernels of a GPU and draw no nets. make test-all: the slow tests too.
# make test-gpu: on a GPU.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
# Files of tests run two at a time, but attacks fill the host: one after the other.
PYTEST := $(RUN)/python -m pytest -q
IN_PAIRS := $(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-fast test-all test-gpu clean

demo: $(VENV)/.demo
	$(RUN)/rowlock demo

test: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check --quiet .
	$(RUN)/mypy
	$(RUN)/python -m tests.house.sizes
	$(IN_PAIRS) -m "not slow"

test-fast: $(VENV)/.dev
	$(IN_PAIRS) -m "not slow and not ray and not kills and not cuda" --ignore-glob="*/test_random_*"

test-all: test
	$(IN_PAIRS) -m "slow and not attack"
	$(PYTEST) -m attack

test-gpu: $(VENV)/.gpu
	$(RUN)/python -m tests.gpu.run

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(RUN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(RUN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.demo

$(VENV)/.gpu: pyproject.toml | $(VENV)/bin/python
	$(RUN)/python -m pip install --quiet --editable '.[dev,gpu]'
	touch $@ $(VENV)/.dev $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist runs *.egg-info
