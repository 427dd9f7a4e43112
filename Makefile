# Everything here works on a machine with Python 3.11, make and a package index. See CONTRIBUTING.md.
PYTHON ?= python3
# Test processes, one more than cores because tests wait for others' processes; each may start a Spark session and
# TensorFlow, and keeps a Python with the engines (about 4 GB together).
WORKERS ?= 3
# Further arguments for pytest, for instance: make test ARGS='tests/project/test_examples.py -x'
ARGS ?=
# Folders of tests/ that are run whole, for instance: make test ROOM='spark native'
ROOM ?=
# What `make test-changed` compares with.
SINCE ?= main

ENVIRONMENT := $(PYTHON) tools/environment.py
DEV := $(ENVIRONMENT) run dev --
DEMO := $(ENVIRONMENT) run demo --
MODERN := $(ENVIRONMENT) run modern --
PYTEST := python -m pytest -q
BESIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What ROOM or ARGS choose runs whole, on both version sets. Else all quick tests run on both, and of the slow ones
# those that show the main path of a room. Each of the other slow ones runs once: beside the real Petastorm, or, where
# its mark says so, on today's versions.
CHOSEN := $(ROOM)$(ARGS)
QUICK := not (slow or spark) or smoke
WHICH_ON_LEGACY := not alone$(if $(CHOSEN),, and not modern$(if $(ALL),, and ($(QUICK))))
WHICH_ON_MODERN := not alone$(if $(CHOSEN),, and ($(if $(ALL),modern or )$(QUICK)))
# Benchmarks race the real Petastorm, and building environments and wheels is the same everywhere.
ONCE := $(addprefix tests/,project/test_benchmarks.py project/test_environment.py project/test_packaging.py)
# Not in the two minutes of test-fast: what looks at the project itself, asks the real Petastorm, waits for far places,
# or imports streaming or Lightning, which each test process would.
NOT_FAST := project against_petastorm/live far native streaming torch/test_lightning.py \
	mds/test_foreign.py sources/test_remote_s3.py
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup setup-demo setup-modern setup-competitors demo compare test test-changed test-all test-fast test-legacy \
	test-modern test-release suite everything lint-beside stress parity parity-record lint fmt bench docs site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: ## create or update .venv, the development environment
	@$(ENVIRONMENT) setup dev

setup-demo: ## create or update .venv-demo, today's versions
	@$(ENVIRONMENT) setup demo

setup-modern: ## create or update .venv-modern, today's versions on Python 3.12
	@$(ENVIRONMENT) setup modern

setup-competitors: ## create or update .venv-competitors, other loaders for the benchmark
	@$(ENVIRONMENT) setup competitors

demo: setup-demo ## train on real data through the bridge
	@$(DEMO) python examples/demo.py

compare: setup ## compare Petastorm, the bridge and streaming on the digits: parity.html
	@$(DEV) python examples/compare_digits.py

test: ## lint, types, and on both version sets all quick tests and the slow ones marked `smoke`; ROOM=spark: all of tests/spark
	@$(MAKE) setup
	@$(MAKE) -j 3 lint-beside setup-modern suite

test-changed: ## the same with all tests of the rooms that the commits since main, or SINCE=..., touch
	@$(MAKE) test ROOM="$$($(PYTHON) tools/rooms.py $(SINCE))"

test-all: ## lint, types, all quick tests on both version sets, and each slow one on one
	@$(MAKE) test ALL=yes

test-fast: setup ## quick tests in .venv: of everything but NOT_FAST, named above
	@$(DEV) $(PYTEST) $(BESIDE) -m 'not (alone or slow or spark or modern)' $(NOT_FAST:%=--ignore tests/%) $(ARGS)

test-legacy: setup ## of `make test`, what runs beside the real Petastorm
	@$(DEV) $(PYTEST) $(BESIDE) -m '$(WHICH_ON_LEGACY)' $(PLACES) $(ARGS)

test-modern: setup-modern ## of `make test`, what runs on today's versions (what needs Petastorm is skipped)
	@$(MODERN) $(PYTEST) $(BESIDE) -m '$(WHICH_ON_MODERN)' $(ONCE:%=--ignore %) $(PLACES) $(ARGS)

# The two version sets come one after the other; on a fresh clone the second one is made beside the first one's tests.
suite:
	@$(MAKE) test-legacy
	@$(MAKE) test-modern
	@$(if $(ROOM)$(ARGS),,$(MODERN) $(PYTEST) -m alone tests/stress)

test-release: ## before a release: all tests on both version sets, all of Petastorm live, 100,000 damages, 10,000 epochs
	@$(MAKE) setup
	@$(MAKE) setup-modern
	@$(MAKE) setup-competitors
	@$(MAKE) -j 2 lint-beside everything

everything:
	@PETASTORM_BRIDGE_PARITY=live PETASTORM_BRIDGE_BENCHMARKS=all PETASTORM_BRIDGE_NOTEBOOKS=all \
		$(MAKE) test-legacy ALL=yes ARGS='$(or $(ARGS),tests)'
	@PARITY_DAMAGE=100000 PARITY_MILLIONS=10 PETASTORM_BRIDGE_MUTATIONS=100000 PETASTORM_BRIDGE_NOTEBOOKS=all \
		$(MAKE) test-modern ARGS='--timeout 0 $(ARGS)'
	@$(MAKE) stress

# Its output comes in one piece, so that it does not mingle with that of the tests.
lint-beside:
	@said=$$($(MAKE) lint 2>&1) || { echo "$$said"; echo 'make lint failed; the tests go on.'; exit 1; }

stress: setup-modern ## ten thousand epochs on busy cores; the other targets have a thousand
	@PETASTORM_BRIDGE_EPOCHS=10000 $(MODERN) $(PYTEST) -m alone tests/stress $(ARGS)

parity: setup ## the comparison with the real Petastorm only, all of it live
	@PETASTORM_BRIDGE_PARITY=live $(DEV) $(PYTEST) $(BESIDE) tests/against_petastorm/live $(ARGS)

parity-record: setup ## store what the real Petastorm gives, so that most test runs need not ask it
	@$(DEV) $(PYTEST) $(BESIDE) tests/against_petastorm/live --parity-record $(ARGS)

lint: setup ## style and types
	@$(DEV) python -m ruff check --quiet .
	@$(DEV) python -m ruff format --quiet --check . || { echo 'Run: make fmt'; exit 1; }
	@$(DEV) python -m mypy --no-error-summary

fmt: setup ## format, and fix what can be fixed
	@$(DEV) python -m ruff check --quiet --fix . || true
	@$(DEV) python -m ruff format .

bench: setup setup-competitors ## the benchmark table
	@$(DEV) python -m benchmarks.run $(ARGS)

docs: setup ## generated pages of the migration guide
	@$(DEV) python tools/build_docs.py

site: docs ## the migration guide as a site: site/index.html
	@NO_MKDOCS_2_WARNING=1 $(DEV) python -m mkdocs build --quiet

clean: ## remove the environments and every cache
	@rm -rf .bootstrap .venv .venv-competitors .venv-demo .venv-modern .mypy_cache .pytest_cache .ruff_cache .hypothesis
