# podium's entry points. `make help` lists them; each does its own set-up first.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(wildcard $(addsuffix /python3.11,$(subst :, ,$(PATH)))) python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq

# An environment is as the two files say, or it is made again.
STAMP  := $(VENV)/installed-$(shell cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)

# Two cores are what a laptop can spare and CI has; torch would take all.
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM ?= false
export DO_NOT_TRACK ?= 1

# Narrow a tier down: `make quick ARGS="-k promote -x"`, `make bench ARGS="resolve"`.
ARGS ?=

# Most tests wait for processes, disks and clocks, so two at once take little more than half the time. What needs a
# real engine or a browser takes all cores by itself, and runs alone.
JOBS ?= 2
BESIDE := --numprocesses $(JOBS) --dist loadfile

.PHONY: help
help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: install ## The whole story on a real model: train, judge, promote, serve, roll back
	@$(BIN)/python -P examples/demo.py $(ARGS)

.PHONY: test
test: lint ## Every test tier that this machine can run, after the linters
	@failed=0; \
	tier() { $(BIN)/python -m pytest $(ARGS) "$$@" || { [[ $$? == 5 ]] || failed=1; }; }; \
	OMP_NUM_THREADS=1 tier -m "not acceptance" $(BESIDE); \
	tier -m acceptance; \
	exit $$failed

.PHONY: again
again: install ## Only the tests that failed last time
	@$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(ARGS)

.PHONY: quick
quick: install ## Unit and simulation tests: no services, under two minutes
	@$(BIN)/python -m pytest -m "not slow and not integration" tests/unit tests/simulation $(BESIDE) $(ARGS)

.PHONY: lint
lint: install ## ruff, mypy, and the rule of which room may import which
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

.PHONY: format
format: install ## Rewrite the code as the linters want it
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: bench
bench: install ## Measure podium beside its peers; writes build/bench.json
	@$(BIN)/python -m tests.benchmarks $(ARGS)

.PHONY: install
install: $(STAMP) ## The environment in .venv, from constraints.txt

$(STAMP):
	@echo "Installing podium's environment in $(VENV): some minutes the first time."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install $$(grep -E '^(pip|setuptools)==' constraints.txt)
	@$(PIP) install --no-deps -r constraints.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@# Someone may have installed the serving extra by hand: see the head of constraints.txt.
	@if ! $(BIN)/python -c "import torchvision" 2>/dev/null; then \
		$(PIP) uninstall --yes torchvision torchaudio torchcodec 2>/dev/null; fi
	@$(BIN)/python -c "import torch" || { echo "This is not a CPU build of torch that works here." \
		"Let pip find one (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS) and run make again." >&2; exit 1; }
	@rm -f $(VENV)/installed-*
	@touch $@

.PHONY: freeze
freeze: ## Write constraints.txt anew from what is installed in .venv
	@{ sed -n '/^#/p' constraints.txt; \
		$(BIN)/python -m pip freeze --all --exclude-editable --exclude podium \
			--exclude torchvision --exclude torchaudio --exclude torchcodec \
		| sed 's/+cpu$$//' | LC_ALL=C sort -f; } > constraints.new
	@mv constraints.new constraints.txt

.PHONY: clean
clean: ## Remove what was made here, but not .venv
	@rm -rf build dist .demo .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
