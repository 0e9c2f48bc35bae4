# `make demo` and `make test` each set up everything they need in .venv and work alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export UV_PYTHON_DOWNLOADS = never

.PHONY: demo test test-chaos lint bench clean help

help:
	@echo "make demo   run the main job on a bundled real example"
	@echo "make test   lint, type check and run all tests"
	@echo "make bench  run the benchmarks (minutes)"
	@echo "make test-chaos  every fault five times on real clusters, and 200 random mixes of them (two hours)"

# uv installs in seconds; where it cannot be had, pip does the same more slowly. Both verify hashes.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("daskpriv needs Python 3.11 or newer; call make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@if $(BIN)/python -m pip install --quiet uv 2>/dev/null; then \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r constraints.txt && \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e . ; \
	else \
	  $(BIN)/python -m pip install --quiet --require-hashes -r constraints.txt && \
	  $(BIN)/python -m pip install --quiet --no-deps -e . ; \
	fi
	@touch $(READY)

demo: $(READY)
	$(BIN)/daskpriv demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(READY) lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-chaos: $(READY)
	$(BIN)/python -m tests.cluster matrix
	$(BIN)/python -m tests.cluster chaos --trials 200

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) daskpriv-report .pytest_cache .mypy_cache .ruff_cache .hypothesis
