# Everything a fresh clone needs: `make demo` and `make test` install what they use into .venv first.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done)
# The peer of the benchmarks needs 3.12.
PYTHON_BENCH ?= $(shell for p in python3 python3.13 python3.12 $(wildcard $(HOME)/.pyenv/versions/*/bin/python3); do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && { echo $$p; exit; }; done)
VENV ?= .venv
VENV_BENCH ?= $(VENV)-bench
BIN = $(VENV)/bin
COVERAGE ?= --cov --cov-report=term:skip-covered
MINUTES ?= 10
MEM0 = mem0ai==2.2.1
PIP = -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all systems lint docs bench e2e measure-sources soak wheel clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo   the main job: a real Mem0, failed answers, verdicts, build/demo/report.html"
	@echo "make test   unit, contract, conformance and integration tests, without those marked slow"
	@echo "make test-all  the same with the slow ones"
	@echo "make systems  every instrumentor with the lowest and the newest version of its system"
	@echo "make lint   ruff and pyright"
	@echo "make docs   the documentation as a site in build/site"
	@echo "make e2e    against real backends and a real browser (scripts/backends installs them; ten minutes the first time)"
	@echo "make soak   the side branch of the Collector at 5,000 spans/s, for MINUTES=10: no loss, flat memory"
	@echo "make bench  what capture costs, against bare SDK spans and smartcomment (needs Python 3.12)"

# $(1) folder, $(2) mem0ai requirement, $(3) extras.
define environment
	@test -n "$(PYTHON)" || { echo "memtrace-otel needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "installing $(1) ($(2)) ..."
	@$(PYTHON) -m venv $(1)
	@$(1)/bin/python $(PIP) --upgrade pip
	@$(1)/bin/python $(PIP) --editable '.[$(3)]' '$(2)'
	@touch $@
endef

$(VENV)/.demo: pyproject.toml constraints.txt
	$(call environment,$(VENV),$(MEM0),demo)

$(VENV)/.dev: pyproject.toml constraints.txt
	$(call environment,$(VENV),$(MEM0),dev)

$(VENV_BENCH)/.bench: pyproject.toml constraints.txt
	@test -n "$(PYTHON_BENCH)" || { echo "make bench needs Python 3.12 or newer; set PYTHON_BENCH=/path/to/python3" >&2; exit 2; }
	@echo "installing $(VENV_BENCH) ..."
	@$(PYTHON_BENCH) -m venv $(VENV_BENCH)
	@$(VENV_BENCH)/bin/python $(PIP) --upgrade pip
	@$(VENV_BENCH)/bin/python $(PIP) --editable '.[bench]'
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/memtrace-otel demo --dir build/demo

# worksteal: an idle worker takes tests of another one, so that a long module does not delay the end.
PYTEST = $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal

test: $(VENV)/.dev
	$(PYTEST) -m "not slow" $(COVERAGE)

test-all: $(VENV)/.dev
	$(PYTEST) $(COVERAGE)

systems:
	tests/environments/run.sh

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# The site needs no network: strict, system fonts, search in the page.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

e2e: $(VENV)/.dev
	scripts/backends install
	tests/e2e/clients/build.sh >/dev/null
	$(BIN)/python -m pytest tests/e2e -m "not timed" --numprocesses 2 --dist loadfile
	$(BIN)/python -m pytest tests/e2e -m timed

soak: $(VENV)/.dev
	scripts/backends install collector jaeger
	$(BIN)/python -m tests.soak --minutes $(MINUTES)

# What attribution from Tempo costs, in stores of two sizes: rate, requests and cost per case.
measure-sources: $(VENV)/.dev
	scripts/backends install tempo
	$(BIN)/python -m tests.e2e.measure_sources

bench: $(VENV_BENCH)/.bench
	$(VENV_BENCH)/bin/python -m tests.bench --page docs/benchmarks.md

wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel --outdir build/dist

clean:
	rm -rf build $(VENV) $(VENV_BENCH) .venvs
