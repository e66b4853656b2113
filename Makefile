# Everything a fresh clone needs: `make demo` and `make test` install what they use into .venv first.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done)
VENV ?= .venv
VENV_MEM0_1 ?= $(VENV)-mem0-1
BIN = $(VENV)/bin
MEM0_2 = mem0ai==2.2.1
MEM0_1 = mem0ai==1.0.11
PIP = -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench e2e wheel clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo   the main job: a real Mem0, failed answers, verdicts, build/demo/report.html"
	@echo "make test   unit, contract and integration tests (real Mem0 2.x and 1.x)"
	@echo "make lint   ruff and pyright"
	@echo "make e2e    against a real Jaeger and a real browser (installs them; takes minutes the first time)"
	@echo "make bench  what capture costs"

# One environment per Mem0 major: $(1) folder, $(2) mem0ai requirement, $(3) extras.
define environment
	@test -n "$(PYTHON)" || { echo "memtrace-otel needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "installing $(1) ($(2)) ..."
	@$(PYTHON) -m venv $(1)
	@$(1)/bin/python $(PIP) --upgrade pip
	@$(1)/bin/python $(PIP) --editable '.[$(3)]' '$(2)'
	@touch $@
endef

$(VENV)/.demo: pyproject.toml constraints.txt
	$(call environment,$(VENV),$(MEM0_2),demo)

$(VENV)/.dev: pyproject.toml constraints.txt
	$(call environment,$(VENV),$(MEM0_2),dev)

$(VENV_MEM0_1)/.test: pyproject.toml constraints.txt
	$(call environment,$(VENV_MEM0_1),$(MEM0_1),test)

demo: $(VENV)/.demo
	@$(BIN)/memtrace-otel demo --dir build/demo

test: $(VENV)/.dev $(VENV_MEM0_1)/.test
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered
	$(VENV_MEM0_1)/bin/python -m pytest tests/integration/mem0

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

e2e: $(VENV)/.dev
	tests/e2e/install.sh
	$(BIN)/python -m pytest tests/e2e

bench: $(VENV)/.dev
	$(BIN)/python tests/bench/capture.py

wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel --outdir build/dist

clean:
	rm -rf build $(VENV) $(VENV_MEM0_1)
