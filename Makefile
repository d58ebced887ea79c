# The commands of the project. Each first installs the packages that it needs (scripts/setup).

.PHONY: demo pipeline simulate history soak test test-all test-weekly test-lowest test-minimal test-pipeline test-sail test-nfs lint types check build bench bench-quick bench-targets bench-plots fuzz fuzz-decoders explorer explorer-check explorer-test docs pictures golden clean
.NOTPARALLEL:

demo:    ## write real data with Spark into one repository, and show the result
	@scripts/setup demo
	@scripts/run python examples/demo.py

pipeline: ## a daily pipeline, on this machine for three days, and on a cluster that loses a worker, twice
	@scripts/setup demo
	@echo "1. on this machine"
	@scripts/run python examples/daily_pipeline.py pipeline-output/machine $(ARGS)
	@echo "2. on this machine, again: nothing is left to do"
	@scripts/run python examples/daily_pipeline.py pipeline-output/machine $(ARGS)
	@echo "3. on this machine, the next day, which completes a damaged file"
	@scripts/run python examples/daily_pipeline.py pipeline-output/machine --days 121 $(ARGS)
	@echo "4. on this machine, the day after: only this day is read"
	@scripts/run python examples/daily_pipeline.py pipeline-output/machine --days 122 $(ARGS)
	@echo "5. on a cluster that loses a worker"
	@scripts/run python examples/daily_pipeline.py pipeline-output/cluster --cluster --kill-worker $(ARGS)
	@echo "6. on the cluster, again: nothing is left to do"
	@scripts/run python examples/daily_pipeline.py pipeline-output/cluster --cluster --kill-worker $(ARGS)
	@echo "look at the results: scripts/run frazil ui pipeline-output/machine/repository"

test:    ## the tests for every change: a few minutes. ARGS="-k name" for pytest
	@scripts/setup test
	@scripts/test $(ARGS)

test-all: ## the tests of CI: also clusters, servers, Spark Connect, long property tests, all fixtures, a browser
	@scripts/setup test
	@scripts/test --all --durations=60 --durations-min=10 $(ARGS)

test-weekly: ## all tests with all sets of parameters
	@scripts/setup test
	@scripts/test --weekly $(ARGS)

test-lowest: ## the lowest supported Python, with the pinned and with the lowest versions
	@scripts/test-python 3.12 $(ARGS)
	@scripts/test-python 3.12 --lowest $(ARGS)

test-minimal: ## the core packages alone, without any extra
	@scripts/test-python 3.12 --minimal $(ARGS)

test-pipeline: ## the extra `pipeline` alone, without pyspark, with the pinned and with the lowest versions
	@scripts/test-python 3.12 --pipeline $(ARGS)
	@scripts/test-python 3.12 --pipeline --lowest $(ARGS)

test-sail: ## SQL, DataFrames and pipelines on Sail, Spark without a JVM
	@scripts/test-python 3.13 --sail $(ARGS)

test-nfs: ## two clients of a real NFS server, in a user-mode Linux. Needs Debian and root
	@scripts/setup test
	@scripts/test-nfs $(ARGS)

lint:    ## style, format, shell scripts, spelling, workflows
	@scripts/setup lint
	@scripts/run ruff check .
	@scripts/run ruff format --check .
	@git grep -lE '^#!/usr/bin/env bash|^# shellcheck shell=' | xargs scripts/run shellcheck --external-sources
	@git ls-files -z | xargs -0 scripts/run codespell
	@scripts/run zizmor --quiet --offline --min-severity medium .github

types:   ## strict type check; of the package also as on Windows, of its storage as on macOS: it reports what those systems do not have
	@scripts/setup test lint
	@printf 'mypy%s\n' '' ' --platform win32 --cache-dir .mypy_cache/win32 src importer/src kit/src' ' --platform darwin --cache-dir .mypy_cache/darwin src/frazil/storage' | \
		xargs -P 3 -I{} sh -c 'scripts/run {}'

check: lint types test-minimal test-pipeline test-lowest test-sail build test-all   ## the checks of CI

build:   ## build the wheels and the sdists twice, check them and the bill of materials, and test the wheels in an empty environment
	@scripts/setup lint
	@scripts/build

fuzz:    ## the property tests, with many new random examples
	@scripts/setup test
	@HYPOTHESIS_PROFILE=fuzz scripts/test -m hypothesis --timeout 7200 $(ARGS)

fuzz-decoders: ## a million changed files for each decoder of stored bytes. ARGS="--seconds 60 manifest"
	@scripts/setup test fuzz
	@scripts/run python -m tests.hostile.fuzz $(ARGS)

simulate: ## a million simulated requests, all orders of a commit beside other operations, and all mutants. ARGS="SEED" for one run
	@scripts/setup test
	@scripts/run python -m tests.simulation $(or $(ARGS),--requests 1000000 --orders --mutants --processes 2)

history: ## many processes on real storages, killed at random, and a check of what they did. ARGS="local --operations 1000"
	@scripts/setup test
	@scripts/run python -m tests.histories $(ARGS)

soak:    ## 10,000 commits in one process: memory, handles, threads and files must not grow
	@scripts/setup test
	@scripts/run python -m tests.histories.soak $(ARGS)

bench:   ## compare Frazil with the reference; writes benchmarks/RESULTS.md and benchmarks/results.json
	@scripts/setup bench
	@scripts/run python benchmarks/run.py $(ARGS)

bench-quick:  ## a few short benchmarks next to the last report; writes nothing
	@scripts/setup bench
	@scripts/run python benchmarks/run.py --daily $(ARGS)

bench-targets:  ## write the targets of benchmarks/RESULTS.md again, from benchmarks/results.json
	@scripts/run python benchmarks/targets.py $(ARGS)

bench-plots:  ## draw the costs of benchmarks/results.json against their sizes, for benchmarks/COSTS.md
	@scripts/run python benchmarks/plots.py $(ARGS)

explorer: ## build the page of `frazil ui` from explorer/ into src/frazil/ui/static, with node and npm
	@scripts/build-explorer

explorer-check: ## format, lint and types of explorer/, and a proof that src/frazil/ui/static is its build
	@scripts/build-explorer --check

explorer-test: explorer-check ## the tests of the page: its reader against Frazil, its views without a browser
	@scripts/setup test
	@cd explorer && npm --silent test

docs:    ## build the documentation site into site/. ARGS=--check: build it twice, and check its links
	@scripts/setup docs
	@scripts/build-docs $(ARGS)

pictures: ## draw the pictures of the tutorial, the gallery and the explorer again, with the browser of scripts/install-browser
	@scripts/setup test browser
	@scripts/run python scripts/site/pictures.py

golden:  ## write tests/golden again with the published wheels
	@scripts/setup test
	@scripts/run python tests/golden/make.py $(ARGS)

clean:
	rm -rf .venv .cache .hypothesis .mypy_cache .ruff_cache .pytest_cache demo-output pipeline-output dist build site
