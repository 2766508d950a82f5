# make demo: trains on two Ray replicas. make test: lint, types, tests, notebooks.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin

.PHONY: demo test clean

demo: $(VENV)/.demo
	$(RUN)/rowlock demo

test: $(VENV)/.dev
	$(RUN)/ruff check .
	$(RUN)/mypy
	$(RUN)/python -m pytest -q

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(RUN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(RUN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) build dist runs *.egg-info
