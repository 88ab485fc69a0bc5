# `make demo` and `make test` set up all they need. `make help` lists the rest.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
STAMP := .venv/installed
PACKAGES := bot scopes subagents config
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

# Tests wait for a third of their time: three workers for two cores.
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 1)
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell echo $$((($(CORES) * 3 + 1) / 2)))

# Else each worker and each process of the bot compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install check test test-system test-slow golden attacks kill-matrix demo bench screenshots lock clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' Makefile

install: $(STAMP)  ## Set up .venv with the locked packages

check: $(STAMP)  ## Formatting, lint, types and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: $(STAMP)  ## Run the tests, long ones in their short form; ARGS="-k name" narrows them
	$(BIN)/pytest -n auto --dist worksteal -m "not slow and not system" --ignore tests/attacks $(ARGS)

test-system: $(STAMP)  ## Run the tests that start, kill or attack the whole bot
	$(BIN)/pytest -n auto --maxschedchunk 1 -m "system and not slow" $(ARGS)

test-slow: $(STAMP)  ## Run the long tests in full
	$(BIN)/pytest -n auto -m slow --timeout 900 $(ARGS)

golden: $(STAMP)  ## Rewrite the golden files and the tables of docs/json.md; look at the difference
	GOLDEN=write $(BIN)/pytest -q tests/test_golden.py \
		tests/test_docs.py::test_field_tables_in_docs_match_the_models $(ARGS)

attacks: $(STAMP)  ## Attack the bot with a model that obeys every planted order; ARGS="-k mail" narrows
	$(BIN)/pytest -n auto tests/attacks $(ARGS)

kill-matrix: $(STAMP)  ## Kill the bot at every point of a request, and look what is left
	$(BIN)/python -m benchmarks.kills $(ARGS)

demo: $(STAMP)  ## Sweep, triage and ask the samples; needs no keys
	@$(BIN)/assistant demo

bench: $(STAMP)  ## Measure speed, size and economy against the stand-ins
	$(BIN)/python -m benchmarks $(ARGS)

screenshots: $(STAMP)  ## Make the pictures of the docs; needs Chromium
	$(BIN)/python docs/screenshots.py

lock: $(STAMP)  ## Lock the dependencies again; ARGS=--upgrade takes newer versions
	$(COMPILE) $(ARGS) pyproject.toml --all-extras --group dev -o requirements-dev.txt
	$(COMPILE) $(ARGS) pyproject.toml -c requirements-dev.txt -o requirements.txt

clean:  ## Remove .venv, caches and build results
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# uv installs three times faster than pip; where it does not run or finds no index, pip does it.
$(STAMP): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed. Install it, or name it: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Setting up .venv (once; takes 15 to 60 seconds) ..." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@sed -n '/^uv==/,/# via/p' requirements-dev.txt > .venv/uv.txt
	@{ $(PIP) --require-hashes -r .venv/uv.txt && $(BIN)/uv pip sync -q --system-certs \
	  --python $(BIN)/python --require-hashes --compile-bytecode requirements-dev.txt; \
	  } 2> .venv/uv.log || { \
	  echo "uv could not be used (.venv/uv.log says why); going on with pip." >&2; \
	  $(PIP) --require-hashes -r requirements-dev.txt; }
	@$(PIP) --no-deps --no-index --no-build-isolation -e .
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@
