"""`python -m tests.histories`: histories on every storage, and a table of what happened."""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.histories.campaign import STORES, Campaign, Scope, counts, is_installed
from tests.histories.checker import Anomaly, check, collect_evidence
from tests.histories.operations import file_counts

import frazil


@dataclass(frozen=True, slots=True)
class Result:
    """One history: what happened, and what is wrong."""

    store: str
    outcomes: Counter[str]
    files: Counter[str]
    kills: int
    faults: Counter[str]
    anomalies: list[Anomaly]
    seconds: float

    def line(self) -> str:
        """Return a line of the table."""
        outcomes = (self.outcomes[name] for name in ("ok", "refused", "unknown"))
        more = (self.kills, self.faults.total(), self.files["collect"], len(self.anomalies))
        return _row(self.store, self.outcomes.total(), *outcomes, *more, f"{self.seconds:.0f}")


def _row(store: str, *values: object) -> str:
    return f"{store:10}" + "".join(f"{value:>11}" for value in values)


_COLUMNS = "operations ok refused unknown kills faults collected anomalies seconds"
TITLE = _row("storage", *_COLUMNS.split())


def run(name: str, folder: Path, scope: Scope) -> Result:
    """Make one history in a folder, and check it."""
    start = time.monotonic()
    with STORES[name](folder, scope.seed) as store:
        campaign = Campaign(store, folder, scope)
        campaign.run()
        history = collect_evidence(
            frazil.Repository.open(store.direct),
            campaign.first,
            campaign.logs(),
            has_faults=store.direct is not store.storage,
        )
    # The storage of a server is gone after the run.
    (folder / "history.pickle").write_bytes(pickle.dumps(history))
    return Result(
        name,
        counts(campaign),
        file_counts(campaign.logs()),
        campaign.kills,
        store.faults,
        check(history),
        time.monotonic() - start,
    )


def main(arguments: list[str]) -> int:
    """Run what the command line says. Return 1 if there is an anomaly."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories")
    parser.add_argument("stores", nargs="*", default=[*STORES], help=f"storages among {', '.join(STORES)}")
    parser.add_argument("--operations", type=int, default=10_000, help="how many operations on each storage")
    parser.add_argument("--workers", type=int, default=4, help="how many processes at a time")
    parser.add_argument("--seconds", type=float, default=0.0, help="end after so many seconds, 0: never")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--folder", type=Path, help="keep logs, histories and local repositories in this folder"
    )
    options = parser.parse_args(arguments)
    scope = Scope(options.operations, options.workers, options.seed, seconds=options.seconds)
    print(TITLE, flush=True)
    failures = 0
    for name in options.stores:
        if not is_installed(name):
            print(f"{name:10} is not installed: run scripts/install-test-servers {name}", flush=True)
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.folder or Path(temporary)) / name
            folder.mkdir(parents=True)
            result = run(name, folder, scope)
        print(result.line(), flush=True)
        for anomaly in result.anomalies[:50]:
            print(f"  {anomaly.kind}: {anomaly.text}", flush=True)
        failures += len(result.anomalies)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
