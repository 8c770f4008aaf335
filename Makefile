# Everything a contributor runs; the same commands run in CI.
.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-all minimum newest build release-check audit faults fuzz check bench bench-against bench-retrieving bench-diagnosing bench-showing bench-serving bench-judges bench-next bench-judgments bench-spark load scifact screenshots clean
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 26

# Each target installs what it needs: the demo into an environment of its own, all else into .venv.
# Types are checked against the libraries that karat can use; races and tests also use others.
LIBRARIES := charts,judge,postgres,retrievers,spark,web

.venv-demo/.installed: pyproject.toml scripts/venv
	bash scripts/venv .venv-demo charts
	touch $@

$(VENV)/.check: pyproject.toml scripts/venv
	bash scripts/venv $(VENV) $(LIBRARIES),check
	touch $@

$(VENV)/.test: pyproject.toml scripts/venv scripts/test_tools
	bash scripts/venv $(VENV) test
	bash scripts/test_tools $(VENV)
	touch $@

venv: $(VENV)/.check $(VENV)/.test ## install everything that tests, checks and races use

demo: .venv-demo/.installed ## take the tour of the built-in example
	.venv-demo/bin/karat demo

# The many processes that tests start read what the first one compiled.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

test: $(VENV)/.test ## run the fast tests (minutes; ARGS for pytest)
	$(PYTEST) -n 3 -m 'not slow' $(ARGS)

test-slow: $(VENV)/.test ## run the tests that make test leaves out (ARGS for pytest)
	$(PYTEST) -n 3 -m slow $(ARGS)

test-all: ## run all tests: test, then test-slow
	$(MAKE) test
	$(MAKE) test-slow

faults: $(VENV)/.test ## kill, starve and disturb karat, and write docs/reliability.md (minutes)
	KARAT_FAULTS=full $(PYTEST) tests/faults -p no:xdist -p no:cacheprovider

$(VENV)/.fuzz: $(VENV)/.test
	bash scripts/venv $(VENV) fuzz
	touch $@

fuzz: $(VENV)/.fuzz ## feed bytes that nobody would write to every reader (SECONDS=120 for each; ARGS names targets)
	$(BIN)/python tests/fuzz/long.py --seconds $(or $(SECONDS),120) $(ARGS)

# Old libraries warn of what is to go from newer ones that they use: no fault of the bounds.
minimum: .venv-minimum/.installed ## the tests with the oldest dependencies that pyproject.toml allows (long; ARGS for pytest)
	PYTHONDONTWRITEBYTECODE= .venv-minimum/bin/python -m pytest -n 2 -p no:cacheprovider \
		-W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning $(ARGS)

.venv-minimum/.installed: pyproject.toml scripts/venv scripts/test_tools scripts/lowest.py | $(VENV)/.test
	rm -rf .venv-minimum
	mkdir .venv-minimum
	$(BIN)/python scripts/lowest.py > .venv-minimum/lowest.txt
	bash scripts/venv .venv-minimum test --constraint .venv-minimum/lowest.txt
	bash scripts/test_tools .venv-minimum
	touch $@

newest: ## the tests with the newest dependencies there are, in a fresh environment (long; ARGS for pytest)
	rm -rf .venv-newest
	bash scripts/venv .venv-newest test
	bash scripts/test_tools .venv-newest
	PYTHONDONTWRITEBYTECODE= .venv-newest/bin/python -m pytest -n 2 -p no:cacheprovider $(ARGS)

$(VENV)/.release: pyproject.toml scripts/venv
	bash scripts/venv $(VENV) $(LIBRARIES),release
	touch $@

build: $(VENV)/.release ## build the wheel and the sdist into dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m twine check --strict dist/*

release-check: build ## install the wheel into fresh environments, the core and each extra, and use it (minutes)
	$(BIN)/python scripts/release_check.py dist $(ARGS)

audit: $(VENV)/.release ## imports, licences, yanked versions, known vulnerabilities (exit 3: could not find out all)
	$(BIN)/python scripts/audit.py $(ARGS)

check: $(VENV)/.check ## lint, formatting, types, import layers, and the walk of one number
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/walk.py

bench: $(VENV)/.test ## race karat against its peers (ARGS=--quick: no 70 M rows; TREC_EVAL names its source or program)
	$(BIN)/python bench/run.py $(ARGS)

bench-against: $(VENV)/.test ## CPU time of the commands against an earlier revision (ARGS=REVISION)
	$(BIN)/python bench/against.py $(ARGS)

bench-retrieving: $(VENV)/.test ## race the retrievers and the runner against the bare libraries
	$(BIN)/python bench/retrieving.py

bench-diagnosing: $(VENV)/.test ## time the commands that say what to fix next
	$(BIN)/python bench/diagnosing.py

bench-showing: $(VENV)/.test ## time the page of a report, written and in the browser
	$(BIN)/python bench/showing.py

bench-serving: $(VENV)/.test ## time the workbench on a thousand stored evaluations
	$(BIN)/python bench/serving.py

bench-judges: $(VENV)/.test ## how often intervals of judged shares hold the truth, in simulation (minutes)
	$(BIN)/python bench/judges.py

bench-next: $(VENV)/.test ## karat next against random order on Cranfield (half an hour; ARGS names its folder)
	$(BIN)/python bench/next.py $(ARGS)

bench-spark: $(VENV)/.test ## race --engine spark against the local engine at 7 and 70 million rows (minutes)
	$(BIN)/python bench/spark.py $(ARGS)

bench-judgments: $(VENV)/.test ## two processes writing 10,000 judgments each, one by one (minutes)
	$(BIN)/python bench/judgments.py

scifact: $(VENV)/.test ## BM25, embeddings and their fusion on SciFact, against published figures (minutes)
	$(BIN)/python scripts/scifact.py

screenshots: $(VENV)/.test ## photograph the report and the workbench for docs/images
	$(BIN)/python scripts/screenshots.py

load: $(VENV)/.test ## 64 clients on karat serve, SQLite and PostgreSQL, 5 minutes each (ARGS=--quick: 20 s)
	$(BIN)/python bench/load.py $(ARGS)

clean: ## remove everything that these targets made
	rm -rf $(VENV) .venv-demo .venv-minimum .venv-newest .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf bench/data build dist out
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
