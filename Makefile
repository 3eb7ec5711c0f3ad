# All targets use the virtual environment .venv, which is created on first use.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
WITH_TESTS := .[dev,docs,xformers]
PINNED := dev docs quantization xformers
# tests/helpers/tiers.py says what each tier is, tests/conftest.py puts the tests in order.
PYTEST := $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder --numprocesses
export HF_HUB_DISABLE_TELEMETRY := 1
export RAY_USAGE_STATS_ENABLED := 0
# Tests start hundreds of processes, which need not compile the same modules each.
unexport PYTHONDONTWRITEBYTECODE

# uv installs the torch stack in under a minute; pip is used where uv is not available.
# Compiling to bytecode halves the time that every worker process takes to start.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "plait needs Python 3.11 or newer; name one with make PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing plait and its packages into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv \
		&& $(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode \
			--constraint constraints.txt --editable '$(1)' \
		|| $(BIN)/python -m pip install --quiet --disable-pip-version-check \
			--constraint constraints.txt --editable '$(1)'
endef

.PHONY: quickstart quickstart-tiny test test-unit test-contract test-models test-system test-all \
	test-pythons check docs soak bench constraints clean

quickstart: $(VENV)/.installed  ## answer the miniature queries with mini weights, show the report
	$(BIN)/plait run

quickstart-tiny: $(VENV)/.installed  ## the bundled sample set with tiny random weights
	$(BIN)/plait run --data sample

test: $(VENV)/.installed-dev  ## the tests that need no process, cluster or browser
	$(PYTEST) 3 --tier unit --tier contract --tier models

test-unit test-contract test-models test-system: $(VENV)/.installed-dev  ## one tier
	$(PYTEST) 3 --tier $(@:test-%=%)

# Tests of the system mostly wait: more run than there are cores.
test-all: $(VENV)/.installed-dev  ## all tests
	$(PYTEST) 4 --durations 25

test-pythons: $(VENV)/.installed-dev  ## the unit tier on each other Python that is installed
	$(BIN)/python tests/helpers/pythons.py

check: $(VENV)/.installed-dev  ## linter, formatter, type checker
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-dev  ## the site of docs/, into build/site; a link that leads nowhere fails
	$(BIN)/zensical build --strict

soak: $(VENV)/.installed-dev  ## faults by seed: on a virtual clock, kills of processes (1,000), two machines (as root); all cases
	$(BIN)/python tests/helpers/histories.py --seeds 10000
	$(BIN)/python tests/helpers/faults.py --seeds 340
	$(BIN)/python tests/helpers/faults.py --machines --seeds 200
	$(PYTEST) 3 --all-cases -m sampled

bench: $(VENV)/.installed  ## measure stages and plait itself on this CPU, in under 15 minutes
	$(BIN)/python -m plait.benchmarks.speed.scripts.series cpu

# Without the extras mlflow and trackio, which hold Pillow and others at former versions.
constraints: $(VENV)/.installed  ## pin the newest versions that fit pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --universal $(addprefix --extra ,$(PINNED)) --python-version 3.11 \
		--constraint constraints-base.txt --no-header --upgrade --quiet -o constraints.txt

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install,.[all])
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	$(call install,$(WITH_TESTS))
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build src/*.egg-info
