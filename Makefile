# Every target works in a fresh clone, with no environment active: .venv is made when it is missing or the lock changed.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MINUTES ?= 30
SEED ?= 1
PROFILE ?=
NOTEBOOK ?= 00 01 02 03 04 05 06 07 08 09 10 11 13
DATA_DIR ?=
RESULTS ?= results/reference

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRIED := $(if $(PYTHON),$(PYTHON),python3.11 python3.12 python3)
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))

# Two processes; tests that would disturb each other are one group, which one of them runs.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup

.PHONY: reproduce check test soak figures report notebooks lab lint lock clean help

help: ## This list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

reproduce: $(READY) ## Measure all notebooks here (or NOTEBOOK='00 02') for MINUTES=30 together; PROFILE=smoke: does it run?; DATA_DIR=folder of real images
	$(BIN)/lockstep run $(NOTEBOOK) $(if $(PROFILE),--profile '$(PROFILE)',--minutes '$(MINUTES)') $(if $(DATA_DIR),--data-dir '$(DATA_DIR)')

check: lint ## For every day: lint, and all tests but MPI, Spark, failures and whole notebooks; a quarter of an hour on two cores
	$(PYTEST) --cpu-budget check -m 'not serial and not slow'

test: lint ## Lint, then all tests; after the install twenty to forty minutes on two cores
	$(PYTEST) --cpu-budget test

soak: $(READY) ## 200 random faults in MINUTES=30 of runs (SEED=1), then 500 mutated records and 200 mutated checkpoints
	code=0; $(BIN)/python -m tests.soak --minutes '$(MINUTES)' --seed '$(SEED)' || code=$$?; \
	LOCKSTEP_MUTATED_RECORDS=500 LOCKSTEP_MUTATED_CHECKPOINTS=200 \
	$(BIN)/python -m pytest -q -k mutated --timeout 1800 tests/records/test_damaged.py tests/engine/training/test_mutated_checkpoints.py \
	&& exit $$code

figures: $(READY) ## Draw the figures anew from stored records
	$(BIN)/lockstep figures --results '$(RESULTS)'

report: $(READY) ## Published, measured and verdict side by side
	$(BIN)/lockstep report --results '$(RESULTS)'

notebooks: $(READY) ## Re-execute the committed notebooks in place from results/reference; trains nothing
	$(BIN)/lockstep notebooks

lab: $(READY) ## Open the notebooks in JupyterLab
	$(BIN)/jupyter lab --notebook-dir=notebooks

lint: $(READY) ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: ## Resolve requirements.in anew into requirements.lock, in a venv of its own
	@python=$$($(call find_python)); new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	echo "lock: installing requirements.in into a fresh environment"; \
	"$$python" -m venv "$$new/venv"; \
	$(call pip_install,$$new/venv/bin/python,-r requirements.in,$$new/pip.log); \
	{ echo '# Written by "make lock" from requirements.in (pip freeze of a fresh venv); do not edit by hand.'; \
	  echo '# Plain pip: pip install -r requirements.lock'; \
	  "$$new/venv/bin/python" -m pip freeze --all 2>/dev/null | grep -vE '^pip==' \
	  | sed -E 's/\+[A-Za-z0-9.]+$$//' | LC_ALL=C sort -f; } > "$$new/lock"; \
	if grep -qE ' @ |://' "$$new/lock"; then echo "lock: a package comes from a path, not an index:"; \
	  grep -E ' @ |://' "$$new/lock"; exit 1; fi; \
	cp "$$new/lock" requirements.lock; echo "lock: $$(grep -c == requirements.lock) packages"

clean: ## Remove the environment and caches; results stay
	rm -rf $(VENV) build lib/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find lib tests notebooks -name __pycache__ -type d -prune -exec rm -rf {} +

# Prints a supported Python's path, or ends with what to do.
find_python = for name in $(TRIED); do \
	    if "$$name" -c '$(SUPPORTED)' 2>/dev/null; then "$$name" -c 'import sys; print(sys.executable)'; exit; fi; \
	done; \
	echo "Lockstep needs Python 3.11 or 3.12; none of these is one: $(TRIED). Install it, or: make PYTHON=path/to/python3.11" >&2; \
	exit 1

# $(1) python, $(2) what, $(3) log. A line for each package; pip's warnings only when it fails.
pip_install = { "$(1)" -m pip install --disable-pip-version-check --progress-bar off $(2) 2>"$(3)" \
	    | awk '/^Collecting / {printf "  %3d %s\n", ++n, $$2} /^Installing collected/ {print "  installing them"} {fflush()}'; } \
	    || { cat "$(3)" >&2; echo "install failed: the lines above say why" >&2; exit 1; }

$(READY): requirements.lock pyproject.toml
	@python=$$($(call find_python)); \
	if ! $(BIN)/python -c '$(SUPPORTED)' 2>/dev/null; then \
	    echo "$(VENV): new environment with $$("$$python" --version)"; \
	    rm -rf $(VENV); "$$python" -m venv $(VENV); \
	fi; \
	echo "$(VENV): installing $$(grep -c == requirements.lock) packages of requirements.lock (some minutes the first time)"; \
	$(call pip_install,$(BIN)/python,-r requirements.lock,$(VENV)/pip.log); \
	$(call pip_install,$(BIN)/python,--no-deps --no-build-isolation -e .,$(VENV)/pip.log); \
	touch $@; echo "$(VENV): ready"
