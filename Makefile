# Everything a contributor runs; the same commands run in CI.
.DEFAULT_GOAL := help
.PHONY: help venv demo test minimum newest build release-check audit faults fuzz check bench bench-retrieving bench-diagnosing bench-showing bench-serving bench-judges bench-next bench-judgments bench-spark load scifact screenshots clean

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

# The many processes that tests start read what the first one compiled.
test: venv ## run the tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3

faults: venv ## kill, starve and disturb karat, and write docs/reliability.md (minutes)
	PYTHONDONTWRITEBYTECODE= KARAT_FAULTS=full $(BIN)/python -m pytest tests/faults -p no:xdist -p no:cacheprovider

$(VENV)/.fuzz: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	touch $@

fuzz: $(VENV)/.fuzz ## feed bytes that nobody would write to every reader (SECONDS=120 for each; ARGS names targets)
	$(BIN)/python tests/fuzz/long.py --seconds $(or $(SECONDS),120) $(ARGS)

# Old libraries warn of what is to go from newer ones that they use: no fault of the bounds.
minimum: .venv-minimum/.installed ## the tests with the oldest dependencies that pyproject.toml allows (long; ARGS for pytest)
	PYTHONDONTWRITEBYTECODE= .venv-minimum/bin/python -m pytest -n 2 -p no:cacheprovider \
		-W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning $(ARGS)

.venv-minimum/.installed: pyproject.toml scripts/venv scripts/lowest.py | venv
	rm -rf .venv-minimum
	mkdir .venv-minimum
	$(BIN)/python scripts/lowest.py > .venv-minimum/lowest.txt
	bash scripts/venv .venv-minimum --constraint .venv-minimum/lowest.txt
	touch $@

newest: ## the tests with the newest dependencies there are, in a fresh environment (long; ARGS for pytest)
	rm -rf .venv-newest
	bash scripts/venv .venv-newest
	PYTHONDONTWRITEBYTECODE= .venv-newest/bin/python -m pytest -n 2 -p no:cacheprovider $(ARGS)

$(VENV)/.release: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	touch $@

build: $(VENV)/.release ## build the wheel and the sdist into dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m twine check --strict dist/*

release-check: build ## install the wheel into fresh environments, the core and each extra, and use it (minutes)
	$(BIN)/python scripts/release_check.py dist $(ARGS)

audit: $(VENV)/.release ## imports, licences, yanked versions, known vulnerabilities (exit 3: could not find out all)
	$(BIN)/python scripts/audit.py $(ARGS)

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

bench-showing: venv ## time the page of a report, written and in the browser
	$(BIN)/python bench/showing.py

bench-serving: venv ## time the workbench on a thousand stored evaluations
	$(BIN)/python bench/serving.py

bench-judges: venv ## how often intervals of judged shares hold the truth, in simulation (minutes)
	$(BIN)/python bench/judges.py

bench-next: venv ## karat next against random order on Cranfield (half an hour; ARGS names its folder)
	$(BIN)/python bench/next.py $(ARGS)

bench-spark: venv ## race --engine spark against the local engine at 7 and 70 million rows (minutes)
	$(BIN)/python bench/spark.py $(ARGS)

bench-judgments: venv ## two processes writing 10,000 judgments each, one by one (minutes)
	$(BIN)/python bench/judgments.py

scifact: venv ## BM25, embeddings and their fusion on SciFact, against published figures (minutes)
	$(BIN)/python scripts/scifact.py

screenshots: venv ## photograph the report and the workbench for docs/images
	$(BIN)/python scripts/screenshots.py

load: venv ## 64 clients on karat serve, SQLite and PostgreSQL, 5 minutes each (ARGS=--quick: 20 s)
	$(BIN)/python bench/load.py $(ARGS)

clean: ## remove everything that these targets made
	rm -rf $(VENV) .venv-minimum .venv-newest .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf bench/data build dist out
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
