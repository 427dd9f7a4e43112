# Everything here works on a machine with Python 3.11, make and a package index. See CONTRIBUTING.md.
PYTHON ?= python3
# Test processes; each may start a Spark session and TensorFlow (about 3 GB together).
WORKERS ?= 2
# Further arguments for pytest, for instance: make test ARGS='tests/project/test_examples.py -x'
ARGS ?=

ENVIRONMENT := $(PYTHON) tools/environment.py
DEV := $(ENVIRONMENT) run dev --
DEMO := $(ENVIRONMENT) run demo --
MODERN := $(ENVIRONMENT) run modern --
PYTEST := python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup setup-demo setup-modern demo compare test test-legacy test-modern parity lint fmt bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## create or update .venv, the development environment
	@$(ENVIRONMENT) setup dev

setup-demo: ## create or update .venv-demo, today's versions
	@$(ENVIRONMENT) setup demo

setup-modern: ## create or update .venv-modern, today's versions on Python 3.12
	@$(ENVIRONMENT) setup modern

demo: setup-demo ## train on real data through the bridge
	@$(DEMO) python examples/demo.py

compare: setup ## compare Petastorm, the bridge and streaming on the digits: parity.html
	@$(DEV) python examples/compare_digits.py

test: ## lint, types, and the test suite on both version sets
	@$(MAKE) lint
	@$(MAKE) test-legacy
	@$(MAKE) test-modern

test-legacy: setup ## the test suite beside the real Petastorm
	@$(DEV) $(PYTEST) $(ARGS)

# Benchmarks race the real Petastorm, and building environments and wheels is the same everywhere.
test-modern: setup-modern ## the test suite on today's versions (what needs Petastorm is skipped)
	@$(MODERN) $(PYTEST) --ignore tests/project/test_benchmarks.py --ignore tests/project/test_environment.py \
		--ignore tests/project/test_packaging.py $(ARGS)

parity: setup ## of the test suite, the live comparison with the real Petastorm only
	@$(DEV) $(PYTEST) tests/against_petastorm/live $(ARGS)

lint: setup ## style and types
	@$(DEV) python -m ruff check --quiet .
	@$(DEV) python -m ruff format --quiet --check . || { echo 'Run: make fmt'; exit 1; }
	@$(DEV) python -m mypy --no-error-summary

fmt: setup ## format, and fix what can be fixed
	@$(DEV) python -m ruff check --quiet --fix . || true
	@$(DEV) python -m ruff format .

bench: setup ## the benchmark table and its plot
	@$(DEV) python -m benchmarks.run $(ARGS)

docs: setup ## generated pages of the migration guide
	@$(DEV) python tools/build_docs.py

clean: ## remove the environments and every cache
	@rm -rf .bootstrap .venv .venv-demo .venv-modern .mypy_cache .pytest_cache .ruff_cache .hypothesis
