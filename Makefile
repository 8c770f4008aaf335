# Everything a contributor runs; the same commands run in CI.
.DEFAULT_GOAL := help
.PHONY: help venv demo test check bench bench-retrieving bench-diagnosing scifact clean

VENV := .venv
BIN := $(VENV)/bin

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 26

venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml scripts/venv
	bash scripts/venv $(VENV)
	touch $@

demo: venv ## take the tour of the built-in example
	$(BIN)/karat demo

test: venv ## run the tests
	$(BIN)/python -m pytest -n 2

check: venv ## lint, formatting, types and import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: venv ## race karat against its peers (ARGS=--quick skips the largest file)
	$(BIN)/python bench/run.py $(ARGS)

bench-retrieving: venv ## race the retrievers and the runner against the bare libraries
	$(BIN)/python bench/retrieving.py

bench-diagnosing: venv ## time the commands that say what to fix next
	$(BIN)/python bench/diagnosing.py

scifact: venv ## BM25, embeddings and their fusion on SciFact, against published figures (minutes)
	$(BIN)/python scripts/scifact.py

clean: ## remove everything that these targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf bench/data build dist out
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
