# make demo and make test each work by themselves in a fresh clone: they need Python 3.10 to 3.13,
# pip and make, and build .venv on the way. PYTHON=python3.12 chooses another interpreter.

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3.10,$(shell command -v $(p))) python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Everything from a registry is installed by its hash; see requirements/README.md.
LOCKED := install --quiet --no-deps --require-hashes --requirement
PROJECT := install --quiet --no-deps --no-build-isolation --editable .
BASE := $(VENV)/.base
DEV := $(VENV)/.dev
RELEASE := $(VENV)-release/.release

.DEFAULT_GOAL := help
.PHONY: help demo test lint oldest portability bench studio studio-test dist lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(BASE) ## Fine-tune the bundled network on real images, without PyTorch (two minutes)
	$(BIN)/pocketune demo

# A process for each core, of one thread each; neighbors stay together and share their fixtures.
test: $(DEV) ## Run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ARGS)

lint: $(DEV) ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

oldest: ## Run the demo with the lowest versions of all dependencies that are allowed
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip $(LOCKED) requirements/oldest.txt
	$(VENV)-oldest/bin/python -m pip $(LOCKED) requirements/build.txt
	$(VENV)-oldest/bin/python -m pip $(PROJECT)
	$(VENV)-oldest/bin/pocketune demo

portability: $(DEV) ## Compute the graphs of kits in other runtimes, and train a kit in a browser
	$(PIP) $(LOCKED) requirements/portability.txt
	if command -v npm >/dev/null; then npm --prefix examples/browser ci --silent; fi
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/portability $(ARGS)

bench: $(DEV) ## Reproduce every figure of benchmarks/results (hours)
	$(PIP) $(LOCKED) requirements/bench.txt
	$(BIN)/python benchmarks/every.py $(ARGS)

studio: web/node_modules ## Build the page of `pocketune studio` (needs Node.js and npm)
	npm --prefix web run --silent build

studio-test: studio $(DEV) ## Check the page's style and types, and test it
	npm --prefix web run --silent check
	npm --prefix web run --silent test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --quiet tests/studio
	npm --prefix web run --silent e2e

dist: $(RELEASE) ## Build wheel, sdist and SBOM, and use both in empty environments without compilers
	rm -rf dist
	$(VENV)-release/bin/python -m build --no-isolation
	$(VENV)-release/bin/python tools/check_dist.py dist

lock: $(RELEASE) ## Renew requirements/ from pyproject.toml and the constraints
	$(VENV)-release/bin/python tools/lock.py

clean: ## Remove the environment and everything that was built
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-release $(VENV)-aarch64 build dist .pytest_cache .mypy_cache \
		.ruff_cache .hypothesis web/node_modules examples/browser/node_modules src/pocketune/studio/site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The device half: all that the demo needs.
$(BASE): pyproject.toml requirements/base.txt requirements/build.txt | $(BIN)/python
	$(PIP) $(LOCKED) requirements/base.txt
	$(PIP) $(LOCKED) requirements/build.txt
	$(PIP) $(PROJECT)
	@touch $@

# Both halves and the tools. torch comes alone, after what it needs, and has no hash: which of its
# builds fits a machine is up to the index that pip is configured with.
$(DEV): pyproject.toml constraints.txt requirements/dev.txt requirements/build.txt | $(BIN)/python
	$(PIP) $(LOCKED) requirements/dev.txt
	$(PIP) install --quiet "$$(grep '^torch==' constraints.txt)"
	$(PIP) $(LOCKED) requirements/build.txt
	$(PIP) $(PROJECT)
	@touch $@ $(BASE)

# What builds a release.
$(RELEASE): requirements/release.txt requirements/build.txt
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip $(LOCKED) requirements/build.txt
	$(VENV)-release/bin/python -m pip $(LOCKED) requirements/release.txt
	@touch $@

# The page's tools, as the lock file pins them.
web/node_modules: web/package.json web/package-lock.json
	@command -v npm >/dev/null || { echo "The studio is built with npm: install Node.js 20.19 or" \
		"later with npm, such as by apt-get install npm, then run this again." >&2; exit 1; }
	npm --prefix web ci --silent
	@touch $@
