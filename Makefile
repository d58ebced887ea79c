# The verbs of the house. Each makes itself ready first (scripts/setup); a second run is quick.

.PHONY: demo pipeline test test-all test-lowest test-minimal test-pipeline lint types check build bench fuzz golden clean
.NOTPARALLEL:

demo:    ## real data through Spark into one repository, and what came out
	@scripts/setup demo
	@scripts/run python examples/demo.py

pipeline: ## a daily pipeline: on this machine, and on a cluster that loses a worker; each twice
	@scripts/setup demo
	@scripts/run python examples/daily_pipeline.py pipeline-output/machine $(ARGS)
	@scripts/run python examples/daily_pipeline.py pipeline-output/machine $(ARGS)
	@scripts/run python examples/daily_pipeline.py pipeline-output/cluster --cluster --kill-worker $(ARGS)
	@scripts/run python examples/daily_pipeline.py pipeline-output/cluster --cluster --kill-worker $(ARGS)

test:    ## the tests for every change: a few minutes. ARGS="-k name" for pytest
	@scripts/setup test
	@scripts/test $(ARGS)

test-all: ## also clusters, servers, Connect, deep properties, every fixture
	@scripts/setup test
	@scripts/test --all $(ARGS)

test-lowest: ## the lowest supported Python, with the pinned and with the lowest versions of packages
	@scripts/test-python 3.12 $(ARGS)
	@scripts/test-python 3.12 --lowest $(ARGS)

test-minimal: ## the core packages alone, without any extra
	@scripts/test-python 3.12 --minimal $(ARGS)

test-pipeline: ## the extra `pipeline` alone, without pyspark: pinned versions, and the lowest
	@scripts/test-python 3.12 --pipeline $(ARGS)
	@scripts/test-python 3.12 --pipeline --lowest $(ARGS)

lint:    ## style and format
	@scripts/setup lint
	@scripts/run ruff check .
	@scripts/run ruff format --check .

types:   ## strict type check
	@scripts/setup test lint
	@scripts/run mypy

check: lint types test-minimal test-pipeline test-lowest test-all   ## what CI runs

build:   ## the wheel and the sdist, checked, installed into an empty environment and tried
	@scripts/setup lint
	@scripts/build

fuzz:    ## the property tests, deep and at random
	@scripts/setup test
	@HYPOTHESIS_PROFILE=fuzz scripts/test -m hypothesis --timeout 7200 $(ARGS)

bench:   ## Frazil beside the reference; writes benchmarks/RESULTS.md
	@scripts/setup bench
	@scripts/run python benchmarks/run.py $(ARGS)

golden:  ## write tests/golden anew with the published wheels
	@scripts/setup test
	@scripts/run python tests/golden/make.py $(ARGS)

clean:
	rm -rf .venv .cache .hypothesis .mypy_cache .ruff_cache .pytest_cache demo-output pipeline-output dist build
