# Two commands on a fresh clone: `make demo` and `make test`. Each makes .venv from the lock file first, once.
VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.made-from-lock

.DEFAULT_GOAL := help
.PHONY: help demo test lint soak bench docs lock clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' Makefile

demo: $(STAMP) ## A simulated 64-node fleet that breaks and heals in your terminal (Ctrl-C stops it)
	@$(BIN)/sickbay demo

test: $(STAMP) ## Everything: ruff, mypy --strict, the import contract, all tests
	@tools/test

lint: $(STAMP) ## Only ruff, mypy --strict and the import contract
	@tools/lint

soak: $(STAMP) ## The long proof: 5,000 simulated seeds, every mutant, 100,000 fuzzed inputs
	$(BIN)/sickbay sim check --seeds 5000
	$(BIN)/sickbay sim mutants
	tools/atheris $(BIN)/python tools/fuzz.py 100000
	SICKBAY_FUZZ=100000 $(BIN)/python -m pytest -n 2 -k fuzz

bench: $(STAMP) ## What it costs, as ratios
	@$(BIN)/python -m benchmarks

docs: $(STAMP) ## Write again the pages that are made from the code: runbooks and settings
	@$(BIN)/python tools/docs.py

lock: $(STAMP) ## Resolve pyproject.toml into requirements.lock again (needs uv)
	@tools/lock

clean: ## Remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(STAMP): requirements.lock pyproject.toml tools/venv
	@tools/venv $(VENV)
	@touch $@
