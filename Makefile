# make demo: trains on two Ray replicas. make test: lint, types, tests, notebooks. make test-gpu: on a GPU.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
# These start Ray, kill processes and fill hosts: one after the other. All others run two at a time.
ON_RAY := $(wildcard tests/attack) tests/cluster tests/contract tests/notebooks \
	$(patsubst %,tests/executor/test_%.py,against_paddle gang_contract running timeline)

.PHONY: demo test test-gpu clean

demo: $(VENV)/.demo
	$(RUN)/rowlock demo

test: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/python -m tests.house.sizes
	$(RUN)/python -m pytest -q -n 2 --dist loadfile $(addprefix --ignore=,$(ON_RAY))
	$(RUN)/python -m pytest -q $(ON_RAY)

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
