"""The plan of an ingest, made on the driver: the new files, and the tasks that write them.

ledger_match  finds the files that the ledger contains
dataset       finds the dataset of the other files
axis_plan     finds the positions of their steps
task_plan     plans the arrays, and the items of work
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.jobs.job import Tasks
from frazil.pipeline.ingest.axis_plan import plan_axis
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.existing import ExistingGroup, GroupChange
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.ledger import Ledger, LedgerVersion, save_ledger
from frazil.pipeline.ingest.ledger_match import LedgerMatch, match_ledger
from frazil.pipeline.ingest.notes import notes
from frazil.pipeline.ingest.options import IngestRequest
from frazil.pipeline.ingest.problems import Problem, refusal
from frazil.pipeline.ingest.report import Report, chosen_chunks
from frazil.pipeline.ingest.task_plan import plan_tasks
from frazil.repository.session.session import Session

#: The number of bad files that the metadata of the commit name. The ledger of the group has all of them.
_NAMED: Final = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks of a job, the report on its files, and the metadata of its commit."""

    tasks: Tasks
    report: Report
    metadata: Mapping[str, Any]


def plan_ingest(
    session: Session,
    request: IngestRequest,
    inspection: Inspection,
    group: str,
    ledger_version: LedgerVersion,
) -> Plan:
    """Plan an ingest into a group.

    Compares the files with each other and with the group, creates and resizes arrays, writes the labels and
    the ledger, and divides the remaining work into items.
    """
    ledger = ledger_version.ledger_in(session, group)
    existing = ExistingGroup(session, group)
    match = match_ledger(request, inspection, ledger, existing)
    rewrites = request.on_change == "rewrite"
    dataset = Dataset.reconcile(
        inspection,
        unpack=request.unpack,
        only=~match.unchanged & (rewrites | ~match.changed),
        allow=request.allow,
        stored=existing.stored_variables(),
    )
    change = GroupChange(request, dataset, existing)
    change.axis, gaps = plan_axis(change, match.changed)
    report = _report(request, dataset, match, gaps)
    if request.on_problem == "fail" and (fatal := report.fatal()):
        raise refusal(fatal, len(inspection.urls))
    accepted = dataset.members
    rejected = ~accepted & ~match.unchanged & ~match.changed
    if request.on_problem == "fail" and rejected.any():
        # A commit must never leave out a file silently.
        texts = [Problem("target", "would be left out", url) for url in inspection.chosen_urls(rejected)]
        raise refusal(texts, len(inspection.urls))
    metadata = _metadata(request, report, accepted, rejected)
    tasks = Tasks([])
    if dataset.families:
        tasks = plan_tasks(change)
        report = replace(report, chunks=chosen_chunks(each.target for each in tasks.shared.arrays))
    after = _ledger_after(request, dataset, ledger, rejected)
    if after is not None:
        save_ledger(session, group, ledger, after)
    return Plan(tasks, report, metadata)


def _report(request: IngestRequest, dataset: Dataset, match: LedgerMatch, gaps: Sequence[Problem]) -> Report:
    inspection = dataset.inspection
    unchanged = set(inspection.chosen_urls(match.unchanged))
    problems = [each for each in inspection.problems if each.url not in unchanged]
    problems += dataset.problems
    if request.on_change != "rewrite":
        fatal = request.on_change == "fail"
        for mask, text in (
            (match.changed & ~match.touched, "was ingested with other contents"),
            (match.touched, "has the size and both ends of an ingested file, but another modification time"),
        ):
            problems += [Problem("changed", text, url, fatal) for url in inspection.chosen_urls(mask)]
    problems += [replace(each, fatal="hole" not in request.allow) for each in gaps]
    problems += notes(dataset)
    return Report(dataset, tuple(problems), int(match.unchanged.sum()))


def _metadata(
    request: IngestRequest, report: Report, accepted: NDArray[np.bool_], rejected: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return the record of the files in the metadata of the commit."""
    inspection = report.inspection
    names = list(compress(inspection.files.names(), rejected.tolist()))[:_NAMED]
    policy = "quarantined" if request.on_problem == "quarantine" else "skipped"
    return {
        "mode": request.mode,
        "files": int(accepted.sum()),
        "unchanged": report.unchanged,
        "bytes": int(inspection.size[accepted].sum()),
        "digest": inspection.as_input().digest,
        policy: {"files": int(rejected.sum()), "names": names},
    }


def _ledger_after(
    request: IngestRequest, dataset: Dataset, ledger: Ledger, rejected: NDArray[np.bool_]
) -> Ledger | None:
    """Return the ledger with the files of this ingest; None if there are no files to record."""
    inspection = dataset.inspection
    recorded = dataset.members
    if request.on_problem == "quarantine":
        recorded = recorded | rejected
    if not recorded.any():
        return None
    urls = inspection.chosen_urls(recorded)
    unlimited = {name for family in dataset.families for name in family.layout.unlimited}
    after = ledger.with_variables(urls, request.variables).with_files(
        urls,
        inspection.fingerprint[recorded],
        inspection.contents[recorded],
        inspection.size[recorded],
        rejected[recorded],
    )
    return replace(
        after,
        concat_dim=dataset.dim or ledger.concat_dim,
        unlimited=tuple(sorted(unlimited | {*ledger.unlimited})),
    )
