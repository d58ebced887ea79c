"""Which tests run, and how long one may take: a plugin of pytest.

The first tier is for every change: `make test`. The second one has all tests: `make test-all`, or ``--all``.
Tests with one of the marks in ``SECOND_TIER`` run in the second tier only. Three ways lead to them without
``--all``: the name of their file or of a test (``tests/interop/test_turns.py``), a mark expression that
selects marks (``-m deep``), and ``CI=true``, which `scripts/test` turns into ``--all``. A folder or ``-k``
selects from the first tier.

A test with the mark ``sample(count)`` runs with ``count`` of its sets of parameters in the first tier, and
with all of them in the second one.

The profile of Hypothesis follows the tier: ``quick`` or ``ci``. ``HYPOTHESIS_PROFILE`` overrides it.
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
SECOND_TIER = ("deep", "cluster", "connect", "servers")

#: Seconds for one test and its fixtures on a quiet machine, where it has no mark `timeout`.
ONE_TEST = 300.0


def deep(*values: object) -> list[object]:
    """Return parameters for `pytest.mark.parametrize` that only the second tier has."""
    return [pytest.param(value, marks=pytest.mark.deep) for value in values]


settings.register_profile("ci", derandomize=True, deadline=None, max_examples=100, print_blob=True)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=20, stateful_step_count=25)
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


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout reads its option
def pytest_configure(config: pytest.Config) -> None:
    everything = config.getoption("all")
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if everything else "quick"))
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
    if config.getoption("all") or selects_marks(config.option.markexpr):
        return
    named = _named_files(config)
    left_out = [item for item in items if _is_second_tier(item) and item.path not in named]
    left_out += [item for item in beyond_samples(items) if item.path not in named]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        excluded = set(left_out)
        items[:] = [item for item in items if item not in excluded]


def selects_marks(expression: str) -> bool:
    """Return whether a mark expression selects marks, and does not only leave out marks."""
    names = re.sub(r"\bnot\s+\w+|\b(and|or)\b|[()]", " ", expression)
    return bool(names.strip())


def _is_second_tier(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in SECOND_TIER)


def beyond_samples(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the sets of parameters that only the second tier has: those between the ones of the sample."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") is not None and not _is_second_tier(item):
            groups[item.nodeid.partition("[")[0]].append(item)
    beyond: list[pytest.Item] = []
    for group in groups.values():
        (count,) = group[0].get_closest_marker("sample").args  # type: ignore[union-attr]  # it has one
        sample = {len(group) * index // count for index in range(count)}
        beyond += [item for index, item in enumerate(group) if index not in sample]
    return beyond


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
