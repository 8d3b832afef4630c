# Two commands on a fresh machine: `make demo` and `make test`. Everything else is a shortcut.
SHELL := /bin/bash
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; raise SystemExit(sys.version_info < (3, 11))' 2>/dev/null \
  && { command -v $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEED ?=
PYTEST := $(BIN)/python -m pytest

.PHONY: setup demo timeline test test-fast test-slow contract-prices exhaustive sim sim-replay mutants mutation crash bench check format lock docs clean

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer with venv (Debian: apt install python3-venv); or say which: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: $(READY)
	@$(BIN)/python -m lab.demo $(if $(SEED),--seed $(SEED))

timeline: demo
	@cp build/demo/timeline.svg docs/images/timeline.svg

test: $(READY)
	$(PYTEST) -m "not slow and not gpu" -n 2 --dist loadgroup -q

test-fast: $(READY)
	$(PYTEST) -m "not slow and not process and not gpu" -n 2 -q --ignore tests/sim --ignore tests/exhaustive

test-slow: $(READY)
	$(PYTEST) -m "slow and not gpu" -n 2 --dist loadgroup -v --ignore tests/exhaustive

contract-prices: $(READY)
	$(PYTEST) -q -n 2 $(addprefix tests/contract/,aws gcp azure lambda_cloud coreweave)

exhaustive: $(READY)
	$(PYTEST) -m "not gpu" -n 2 -q tests/exhaustive

sim: $(READY)
	$(BIN)/python -m tests.sim run --seeds $(or $(SEEDS),200) --start $(or $(START),0) --hours $(or $(HOURS),1) $(if $(MUTANT),--mutant $(MUTANT))

sim-replay: $(READY)
	$(BIN)/python -m tests.sim replay --seed $(SEED) --hours $(or $(HOURS),1) $(if $(MUTANT),--mutant $(MUTANT)) $(if $(WITHOUT),--without $(WITHOUT))

mutants: $(READY)
	$(BIN)/python -m tests.sim mutants

mutation: $(READY)
	nice -n 10 $(BIN)/python -m tests.exhaustive.mutation

crash: $(READY)
	@$(BIN)/python -m tests.crash --kills $(or $(KILLS),50) $(if $(SEED),--seed $(SEED))

bench: $(READY)
	@$(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(SKY_CATALOGS),--sky-catalogs $(SKY_CATALOGS))

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet torch==2.13.0
	build/lock/bin/python -m pip install --quiet --group lab --group test --group lint . hatchling editables
	build/lock/bin/python -m pip freeze --exclude gpu-capacity-broker | sed -e 's/^torch==.*/torch==2.13.0/' > requirements.lock
	rm -rf build/lock

docs: $(READY)
	$(BIN)/python -m docs.generate

clean:
	rm -rf build $(VENV)
