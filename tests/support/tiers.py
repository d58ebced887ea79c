"""Which tests run, and how long one may take: a plugin of pytest.

The first tier is for every change: `make test`. The second one is for every change in CI: `make test-all`, or
``--all``. The third one has all tests: `make test-weekly`, or ``--weekly``; CI runs it each week.

Tests with one of the marks in ``SECOND_TIER`` run in the second tier, those with the mark ``weekly`` in the
third one. A test with the mark ``sample(first, second)`` runs with ``first`` of its sets of parameters in the
first tier, with ``second`` of them in the second one (by default all), and with all of them in the third one.

Three other ways lead to all tests: the name of their file or of a test (``tests/interop/test_turns.py``), a
mark expression that selects marks (``-m deep``), and ``CI=true``, which `scripts/test` turns into ``--all``.
A folder or ``-k`` selects from the first tier.

The profile of Hypothesis follows the tier: ``quick``, ``ci`` or ``weekly``. ``HYPOTHESIS_PROFILE`` overrides
it.
"""

from __future__ import annotations

import faulthandler
import os
import re
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

import pytest
from hypothesis import HealthCheck, settings
from tests.support.patience import patience, slowness

#: These start programs that take long, or need more than PyPI has; `deep` is for all other reasons.
SECOND_TIER = ("deep", "cluster", "connect", "servers", "browser")

#: Seconds for one test and its fixtures on a quiet machine, where it has no mark `timeout`.
ONE_TEST = 300.0


def deep(*values: object) -> list[object]:
    """Return parameters for `pytest.mark.parametrize` that only the second tier has."""
    return [pytest.param(value, marks=pytest.mark.deep) for value in values]


settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=30,  # each run has the same examples
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is slow, too
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20, stateful_step_count=25)
settings.register_profile("weekly", settings.get_profile("ci"), max_examples=200)
settings.register_profile(
    "fuzz",
    derandomize=False,
    deadline=None,
    max_examples=5_000,
    stateful_step_count=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help=f"also run the tests marked {', '.join(SECOND_TIER)}")
    parser.addoption("--weekly", action="store_true", help="run all tests, also those marked weekly")


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout reads its option
def pytest_configure(config: pytest.Config) -> None:
    profile = "weekly" if config.getoption("weekly") else "ci" if config.getoption("all") else "quick"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", profile))
    if config.option.timeout is None and "PYTEST_TIMEOUT" not in os.environ:
        config.option.timeout = patience(ONE_TEST)
    # Standard error as it is now: pytest redirects file descriptor 2 while tests run.
    config.stash[_STACKS] = os.fdopen(os.dup(2), "w")


def pytest_unconfigure(config: pytest.Config) -> None:
    if (file := config.stash.get(_STACKS, None)) is not None:
        file.close()
        del config.stash[_STACKS]


def pytest_report_header() -> str:
    return f"frazil: limits of time x {slowness():.1f}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Under xdist the main process does not know which tests the workers left out."""
    if not config.getoption("all") and not selects_marks(config.option.markexpr):
        marks = ", ".join(SECOND_TIER)
        terminalreporter.write_line(f"frazil: the first tier of tests; --all adds those marked {marks}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if (mark := item.get_closest_marker("timeout")) is not None:
            item.add_marker(pytest.mark.timeout(patience(mark.args[0])), append=False)
    if config.getoption("weekly") or selects_marks(config.option.markexpr):
        return
    tier = 2 if config.getoption("all") else 1
    named = _named_files(config)
    excluded = {item for item in excluded_items(items, tier) if item.path not in named}
    if excluded:
        config.hook.pytest_deselected(items=list(excluded))
        items[:] = [item for item in items if item not in excluded]


def excluded_items(items: list[pytest.Item], tier: int) -> list[pytest.Item]:
    """Return the items that a tier does not run."""
    marks = ("weekly",) if tier == 2 else ("weekly", *SECOND_TIER)
    excluded = [item for item in items if any(item.get_closest_marker(name) for name in marks)]
    by_mark = set(excluded)
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item not in by_mark and item.get_closest_marker("sample") is not None:
            groups[item.nodeid.partition("[")[0]].append(item)
    for group in groups.values():
        counts = group[0].get_closest_marker("sample").args  # type: ignore[union-attr]  # it has one
        if tier <= len(counts):
            sample = {len(group) * index // counts[tier - 1] for index in range(counts[tier - 1])}
            excluded += [item for index, item in enumerate(group) if index not in sample]
    return excluded


def selects_marks(expression: str) -> bool:
    """Return whether a mark expression selects marks, and does not only leave out marks."""
    names = re.sub(r"\bnot\s+\w+|\b(and|or)\b|[()]", " ", expression)
    return bool(names.strip())


def _named_files(config: pytest.Config) -> set[Path]:
    """Return the files that the command line names, alone or with tests in them."""
    paths = (config.invocation_params.dir / argument.partition("::")[0] for argument in config.args)
    return {path.resolve() for path in paths if path.is_file()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Dump the stacks of all threads shortly before a test reaches its limit."""
    mark = item.get_closest_marker("timeout")
    limit = float(mark.args[0] if mark is not None else item.config.option.timeout or 0)
    if limit:
        faulthandler.dump_traceback_later(0.95 * limit, file=item.config.stash[_STACKS])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


_STACKS = pytest.StashKey[TextIO]()
