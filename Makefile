# make demo: trains on two Ray replicas. make test: lint, types, tests, notebooks. make test-gpu: on a GPU.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
# No processes of their own: two run at once.
APART := tests/ops tests/graph tests/house tests/strategies

.PHONY: demo test test-gpu clean

demo: $(VENV)/.demo
	$(RUN)/rowlock demo

test: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/python -m tests.house.sizes
	$(RUN)/python -m pytest -q -n 2 --dist loadfile $(APART)
	$(RUN)/python -m pytest -q $(addprefix --ignore=,$(APART))

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
