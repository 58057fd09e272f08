# Plain `make` explains the targets. Each of them sets up what it needs, in .venv.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	>/dev/null 2>&1 && { echo $$python; break; }; done)
# One more than the cores of a small machine: many tests wait for processes.
JOBS ?= 3
STORE ?= file

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPED := stado agent coordinator

SERVER_s3 := seaweedfs
SERVER_gs := fake-gcs
DEMO := $(BIN)/python examples/digits-sweep/demo.py

# Tests start thousands of processes, each of which would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv test check format demo bench sim soak faults chaos docs golden lock clean

help:  ## Show this list
	@echo 'Targets (each sets up .venv when it has to):'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP)  ## Make .venv with stado (editable) and everything for development

$(STAMP): pyproject.toml requirements-dev.lock
	@test -n "$(PYTHON)" || { echo 'No Python 3.11 or newer with venv: install one, or say make PYTHON=...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --requirement requirements-dev.lock
	$(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

test: $(STAMP)  ## Run the tests (JOBS=3 at a time; ARGS='-k name' picks some)
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

check: $(STAMP)  ## Format, lint, types, then the tests: what a change must pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict $(TYPED)
	$(MAKE) test

format: $(STAMP)  ## Format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: $(STAMP)  ## Run a sweep of real trainings (STORE=file, s3 or gs: a server of this machine)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(if $(filter file,$(STORE)),$(DEMO),\
	$(BIN)/python -m tests.servers $(or $(SERVER_$(STORE)),$(error STORE is file, s3 or gs, not $(STORE))) --for-command $(DEMO) --store-from-environment)

bench: $(STAMP)  ## Measure beside floors of the same run; fail when a limit is missed (ARGS=--quick)
	$(BIN)/python -m tests.bench $(ARGS)

sim: $(STAMP)  ## Simulate many seeds (SEEDS=300), or one of them with all that happened (SEED=17)
	$(BIN)/python -m tests.simulation --jobs $(JOBS) $(if $(SEED),--seed $(SEED),$(if $(SEEDS),--seeds $(SEEDS))) $(ARGS)

soak: $(STAMP)  ## Simulate new seeds until stopped
	$(BIN)/python -m tests.simulation --jobs $(JOBS) --soak $(ARGS)

faults: $(STAMP)  ## Simulate small scenarios with every fault at every request (ARGS='--only run:17:late')
	$(BIN)/python -m tests.simulation.every_fault --jobs $(JOBS) $(ARGS)

chaos: $(STAMP)  ## Hurt real processes for three minutes and check what is left (ARGS='--store file --seed 7')
	$(BIN)/python -m tests.chaos $(ARGS)

docs: $(STAMP)  ## Build the documentation as a site, in site/
	$(BIN)/sphinx-build -q -W --keep-going -c docs . site
	@echo 'open site/docs/index.html'

golden: $(STAMP)  ## Write anew what commands answer to programs (tests/cli/golden)
	REWRITE_GOLDEN=1 $(BIN)/python -m pytest -q tests/cli/test_golden.py

lock:  ## Pin the newest versions that fit, from a clean environment, into requirements-dev.lock
	@test -n "$(PYTHON)" || { echo 'No Python 3.11 or newer with venv: install one, or say make PYTHON=...' >&2; exit 1; }
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install -qq --no-compile --disable-pip-version-check --editable '.[dev]'
	.venv-lock/bin/python -m pip freeze --disable-pip-version-check --exclude-editable \
	| grep -E '^[A-Za-z0-9._-]+==[^ ]+$$' > requirements-dev.lock.new
	mv requirements-dev.lock.new requirements-dev.lock
	rm -rf .venv-lock

clean:  ## Remove what the targets made
	rm -rf $(VENV) .venv-lock requirements-dev.lock.new .demo .bench site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
