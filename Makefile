# Two commands on a fresh clone: `make demo` and `make test`. Each makes .venv from the lock file first, once.
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.made-from-lock

# Compiled once and kept beside the packages: where Python is told not to write bytecode, each of the hundreds of short
# processes of the tests would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

.DEFAULT_GOAL := help
.PHONY: help demo demo-kubernetes test lint soak bench bench-kubernetes docs lock clean manifests

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

demo: $(STAMP) ## A simulated 64-node fleet that breaks and heals in your terminal (Ctrl-C stops it)
	@$(BIN)/sickbay demo

demo-kubernetes: $(STAMP) ## A real control plane on this machine in which a GPU node falls ill and comes back
	@$(BIN)/python -m testbed.demo

test: $(STAMP) ## Everything: ruff, mypy --strict, the import contract, all tests
	@tools/test

lint: $(STAMP) ## Only ruff, mypy --strict and the import contract
	@tools/lint

soak: $(STAMP) ## The long proof: 5,000 simulated seeds, longest settings, partitions, every mutant, does it help, fuzzing
	$(BIN)/sickbay sim check --seeds 5000
	$(BIN)/sickbay sim check --soak --seeds 300 --first 100000
	$(BIN)/sickbay sim partitions --nodes 64
	$(BIN)/sickbay sim partitions --nodes 64 --witness
	$(BIN)/sickbay sim partitions --nodes 64 --place rack
	$(BIN)/sickbay sim partitions --nodes 64 --place pool
	$(BIN)/sickbay sim partitions --nodes 1024
	$(BIN)/sickbay sim compare --seeds 12
	$(BIN)/sickbay sim mutants
	tools/atheris $(BIN)/python tools/fuzz.py 100000
	SICKBAY_FUZZ=100000 $(BIN)/python -m pytest -n 2 -k fuzz
	SICKBAY_SOAK=1 $(BIN)/python -m pytest -n 2 tests/kubernetes

bench: $(STAMP) ## What it costs, as ratios
	@$(BIN)/python -m benchmarks

bench-kubernetes: $(STAMP) ## What it costs on a real control plane with thousands of nodes, as ratios
	@$(BIN)/python -m benchmarks.kubernetes

docs: $(STAMP) ## Write again the pages that are made from the code: runbooks and settings
	@$(BIN)/python tools/docs.py

manifests: $(STAMP) ## Write again what is made from the Helm chart: deploy/kubernetes
	@tools/manifests

lock: $(STAMP) ## Resolve pyproject.toml into requirements.lock again (needs uv)
	@tools/lock

clean: ## Remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(STAMP): requirements.lock pyproject.toml tools/venv
	@tools/venv $(VENV)
	@touch $@
