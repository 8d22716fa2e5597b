# One line of help for each verb: `make help`. `make run` and `make test` do all set-up themselves.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
STAMP := $(VENV)/.installed
# one process more than a small machine has cores: tests also wait for disks and for each other's programs
JOBS ?= 3

.DEFAULT_GOAL := help
.PHONY: help install run test lint bench prove docs lock debian clean config-upgrade

help:     ## show these lines
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 16

install: $(STAMP)  ## make .venv and install everything, at the pinned versions

$(STAMP): requirements/dev.txt pyproject.toml scripts/install.sh
	@bash scripts/install.sh "$(PYTHON)" "$(VENV)"
	@touch $@

run: $(STAMP)  ## set up if needed, then show what Holdfast does, on something real
	@$(BIN)/python examples/tour.py

test: $(STAMP) debian  ## set up if needed, then run all tests
	@echo "==> running the tests"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

lint: $(STAMP)  ## style, types and import layers
	@echo "==> ruff, mypy, import-linter"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache

bench: $(STAMP)  ## run every benchmark; each prints one JSON object
	@for b in benchmarks/[a-z]*.py; do echo "==> $$b"; $(BIN)/python $$b || exit 1; done

prove: $(STAMP) debian  ## the long crash, fault and property runs; goes on where it was broken off (ARGS=--fresh: anew)
	@$(BIN)/python scripts/prove.py $(ARGS)

docs: $(STAMP) $(VENV)/docs/.installed  ## run every snippet of the README and the docs, then build the site into build/site
	@$(BIN)/python -m pytest tests/docs
	@$(BIN)/python scripts/build_docs.py $(VENV)/docs/bin/zensical

$(VENV)/docs/.installed: requirements/docs.txt | $(STAMP)
	@echo "==> installing what builds the site (requirements/docs.txt)"
	@$(PYTHON) -m venv $(VENV)/docs
	@$(VENV)/docs/bin/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements/docs.txt
	@touch $@

config-upgrade: $(STAMP)  ## bring a config.yaml to the current schema, comments kept: CONFIG=path
	@$(BIN)/holdfast config upgrade $(if $(CONFIG),--config "$(CONFIG)")

debian:
	@bash scripts/debian.sh

lock: $(STAMP)  ## choose versions anew and write requirements/*.txt
	@$(BIN)/uv pip compile --generate-hashes --no-header --no-annotate --universal --python-version 3.11 --upgrade \
		--all-extras --group dev pyproject.toml -o requirements/dev.txt
	@$(BIN)/uv pip compile --generate-hashes --no-header --no-annotate --universal --python-version 3.11 --upgrade \
		--group docs -o requirements/docs.txt

clean:    ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
