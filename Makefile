.DEFAULT_GOAL := help
.PHONY: help setup example test lint format types verify benchmark wheel ci

VENV ?= .venv
BIN := $(VENV)/bin

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.ready: pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

setup: $(VENV)/.ready  ## Make a virtual environment with tasodsl and all that its tests need

example: setup  ## Make a small real network and optimize it
	$(BIN)/python examples/make_small_network.py small.onnx
	$(BIN)/tasodsl optimize small.onnx --time 20

test: setup  ## Run the tests
	$(BIN)/pytest

lint: setup  ## Look for faults and for unformatted files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup  ## Format the Python files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup  ## Check the types
	$(BIN)/pyright --pythonpath $(BIN)/python

verify: setup  ## Prove the shipped rules
	$(BIN)/tasodsl verify rules

benchmark: setup  ## Optimize nine real networks and print what was gained (downloads them into networks/)
	test -d networks || $(BIN)/python ../shared/models/fetch.py networks
	$(BIN)/python benchmarks/networks.py networks

wheel: setup  ## Build a wheel into dist/
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

ci:  ## Everything a change must pass, in a fresh environment
	.ci/run
