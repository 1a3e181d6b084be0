# Needs Linux, Python 3.11 or newer with venv, and make. Nothing here calls sudo.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

# Candidates for the venv's Python; `make PYTHON=/path/to/python` names one.
PYTHON ?= python3.13 python3.12 python3.11 python3
FITS := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
# Shell text that leaves in $$python the first candidate that fits, or says how to get one.
FIND_PYTHON = for python in $(PYTHON) none; do $$python -c '$(FITS)' 2>/dev/null && break; done; \
	[ $$python != none ] || { echo 'No Python >= 3.11 with venv among "$(PYTHON)". \
	As root: apt-get install python3.11-venv make' >&2; exit 2; }

# A venv is ready for exactly these pins and this project table.
READY := $(VENV)/.ready-$(shell cat requirements/dev.txt pyproject.toml | cksum | cut -d' ' -f1)

STAGES := setup lint unit:tests/unit integration:tests/integration chaos:tests/chaos
ifdef CI
STAGES := setup nginx-debian? $(filter-out setup,$(STAGES))
endif

# Where it is set, each process compiles everything again at its start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup chaos test lint unit integration coverage bench nginx-debian pins clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22
	@echo '  ARGS="-k name -x" goes to pytest; PYTHON=... names the Python of the venv'

setup: $(READY) ## make the venv with the pinned packages and the command streamchaos
	@echo '$(VENV) is ready'

$(READY): requirements/dev.txt pyproject.toml tools/setup.py
	@$(FIND_PYTHON); $$python tools/setup.py $(VENV) $@

chaos: $(READY) ## the quick tier of the chaos suite on the reference engine
	@$(BIN)/python tools/report.py $(BIN)/python -m pytest -m "chaos and quick" tests/chaos $(ARGS)

test: ## set up, then lint and all tests that need no GPU and no vLLM
	@$(FIND_PYTHON); $$python tools/stages.py $(STAGES)

lint: $(READY) ## ruff and mypy
	@code=0; $(BIN)/ruff check . || code=1; $(BIN)/mypy || code=1; exit $$code

unit: $(READY) ## the unit tests
	@$(BIN)/python -m pytest tests/unit $(ARGS)

integration: $(READY) ## the tests on loopback
	@$(BIN)/python -m pytest tests/integration $(ARGS)

coverage: $(READY) ## branch coverage of the pure parts by the unit tests
	@$(BIN)/coverage run -m pytest -q tests/unit $(ARGS)
	@$(BIN)/coverage report

bench: $(READY) ## how many streams the reference engine holds (about 10 s; exit 1: too late)
	@$(BIN)/python -m stacks.reference.capacity $(ARGS)

nginx-debian: $(READY) ## unpack Debian's nginx into a folder of ours
	@$(BIN)/python -m stacks.nginx.debian

UV ?= uv
PIN = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--only-binary :all: --no-emit-index-url --no-emit-find-links --custom-compile-command 'make pins'
pins: ## pin requirements/*.in again, with hashes (needs uv; UPGRADE=-U for newer versions)
	@$(UV) --version >/dev/null || { echo 'pip install uv, or make pins UV=/path/to/uv' >&2; exit 2; }
	$(PIN) $(UPGRADE) -o requirements/runtime.txt requirements/runtime.in
	$(PIN) $(UPGRADE) -c requirements/runtime.txt -o requirements/dev.txt requirements/dev.in

clean: ## remove what was set up and built; chaos-results/ stays
	rm -rf $(VENV) .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
