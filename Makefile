# Everything runs in .venv at the root of the repository; a stamp file remembers what is installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports by itself; all of it beforehand would take half a minute more.
INSTALL := install --quiet --disable-pip-version-check --no-compile --editable

.PHONY: run test lint format soak docs clean
.DEFAULT_GOAL := run

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/pip $(INSTALL) .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/pip $(INSTALL) '.[test]'
	@touch $(VENV)/.installed $@

run: $(VENV)/.installed
	$(BIN)/gradless train digits

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -m 'not soak'

lint: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python docs/extension/sources.py

docs: $(VENV)/.installed-test
	$(BIN)/sphinx-build -W --keep-going -n -q docs docs/_build
	@echo docs/_build/index.html

soak: $(VENV)/.installed-test
	$(BIN)/pytest -m soak

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache docs/_build
