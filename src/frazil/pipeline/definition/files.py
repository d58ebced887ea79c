"""The files of one table: those that are not ingested, the plan of their ingest, and those of a span."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import cftime  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time
from frazil.errors import InvalidInputError
from frazil.pipeline.definition.results import PlannedIngest
from frazil.pipeline.definition.tables import PipelineIngest, request_of
from frazil.pipeline.derivation.digest_table import ChunkHashes
from frazil.pipeline.derivation.operation import MOST_CHUNKS
from frazil.pipeline.ingest.arrays import read_labels
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.existing import ExistingGroup, load_ledger
from frazil.pipeline.ingest.inspection import COMPARED, Inspection
from frazil.pipeline.ingest.operation import (
    inspect_for_group,
    inspection_report,
    load_ledgers,
    match_files,
    plan_groups,
)
from frazil.pipeline.ingest.options import FEW_FILES, IngestRequest, Problem, ledger_name
from frazil.pipeline.ingest.steps import NO_STEPS, Steps
from frazil.pipeline.ingest.tasks import copy_values
from frazil.repository.session.session import ForkSession, Session

#: A label of files: a date, which is a whole day, a time, or a number.
type Label = date | datetime | float

#: Up to this number of files, of which few are new, this process inspects: Spark need not start for nothing.
_FEW: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class TableFiles:
    """The inspected files of one table, and masks of those that are not ingested, and of changed ones."""

    table: PipelineIngest
    request: IngestRequest
    inspection: Inspection
    pending: NDArray[np.bool_]
    changed: NDArray[np.bool_]

    @staticmethod
    def of(session: Session, table: PipelineIngest, folder: Path, **options: Any) -> TableFiles:
        """Inspect the files of a table, and compare them with the ledger of its group."""
        request = request_of(table, folder, **options)
        urls, inspecting = request.files.urls, request
        ledgers = load_ledgers(request, session, table.group)
        new = np.all([each.rows_of(urls) < 0 for each in ledgers.values()], axis=0)
        if len(urls) <= _FEW and new.sum() <= FEW_FILES and request.engine != "inline":
            inspecting = replace(request, engine="threads")
        inspection, ledgers = inspect_for_group(inspecting, session, table.group)
        unchanged, changed = match_files(request, inspection, ledgers, session)
        pending = ~unchanged & ~(changed & (request.on_change == "ignore"))
        return TableFiles(table, request, inspection, pending, changed & pending)

    @staticmethod
    def within(
        session: Session, table: PipelineIngest, folder: Path, span: tuple[Label, Label], **options: Any
    ) -> tuple[list[TableFiles], dict[str, str]]:
        """Return the files of a table that have a label in a span, all to ingest again, if there are any.

        The second part has the files that cannot be read, which may have one, with their reasons.
        """
        options |= {"mode": "backfill", "on_change": "rewrite"}
        request = request_of(table, folder, **options)
        inspection, _ = inspect_for_group(request, session, table.group, again=True)
        unreadable = problems_of(inspection, [each for each in inspection.problems if each.fatal])
        urls = inspection.chosen_urls(_within(inspection, ExistingGroup(session, table.group), span))
        if not urls:
            return [], unreadable
        request = request_of(replace(table, files=urls), Path(), **options)
        inspection, _ = inspect_for_group(request, session, table.group, again=True)
        every = np.ones(len(urls), np.bool_)
        return [TableFiles(table, request, inspection, every, ~every)], unreadable

    def plan(self, session: Session, hashes: ChunkHashes) -> PlannedIngest:
        """Plan the ingest in a session that nobody commits, and predict the hashes of the chunks."""
        inspection, group = self.inspection, self.table.group
        planned = PlannedIngest(group, known=int((~self.pending).sum()))
        if not self.pending.any():
            return planned
        ledgers = load_ledgers(self.request, session, group)
        tasks, report, _ = plan_groups(session, self.request, inspection, ledgers)
        arrays = [each.target for each in tasks.shared.arrays] if tasks.items else []
        small = {
            number
            for number, each in enumerate(arrays)
            if each.axis is None and math.prod(each.shape) * each.itemsize <= COMPARED
        }
        for item in tasks.items:  # derived arrays may be planned by the values of coordinates
            boxes = tuple(each for each in item.boxes if each.array in small)
            if boxes and not item.virtual:
                copy_values(cast("ForkSession", session), tasks.shared, replace(item, boxes=boxes))
        chunks, size = [list[NDArray[np.int64]]() for _ in arrays], 0
        for box, virtual in ((box, item.virtual) for item in tasks.items for box in item.boxes):
            target = arrays[box.array]
            if not virtual:
                size += math.prod(np.subtract(box.stop, box.start).tolist()) * target.itemsize
            counts = [-(-length // step) for length, step in zip(target.shape, target.grid, strict=True)]
            spans = zip(box.start, box.stop, target.grid, strict=True)
            index = np.ix_(*(np.arange(low // step, -(-high // step)) for low, high, step in spans))
            numbers = np.ravel_multi_index(index, counts) if counts else np.zeros(1, np.int64)
            chunks[box.array].append(np.asarray(numbers, np.int64).ravel())
        seed = np.frombuffer(bytes.fromhex(inspection.digest), np.uint64)
        for target, some in zip(arrays, chunks, strict=True):
            counts = [-(-length // step) for length, step in zip(target.shape, target.grid, strict=True)]
            if some and math.prod(counts) <= MOST_CHUNKS:  # what depends on others is computed in full
                changed = np.unique(np.concatenate(some))
                change = partial(_change, changed, seed)
                hashes.predict(target.path, change, math.prod(target.grid) * target.itemsize)
        left_out, steps, names = (
            problems_of(report.inspection, report.fatal()),
            report.dataset.steps,
            inspection.files.names(range(len(inspection.urls))),
        )
        new, changed_names = (
            tuple(each for each in itertools.compress(names, mask.tolist()) if each not in left_out)
            for mask in (self.pending & ~self.changed, self.changed)
        )
        ends = () if steps.axis is None or not len(steps.axis) else (steps.axis[0], steps.axis[-1])
        return replace(
            planned,
            new=new,
            changed=changed_names,
            left_out=tuple(left_out.items()),
            span=tuple(map(steps.label_text, ends)),
            tasks=len(tasks.items),
            bytes=size,
        )


def problems_of(inspection: Inspection, problems: Sequence[Problem]) -> dict[str, str]:
    """Return the reasons of the files that are left out, by their names."""
    problems = [each for each in reversed(problems) if each.url is not None]
    row_of = dict(zip(inspection.urls, range(len(inspection.urls)), strict=True))
    names = inspection.files.names([row_of[str(each.url)] for each in problems])
    return {name: f"{each.kind}: {each.message}" for name, each in zip(names, problems, strict=True)}


def newest_label(session: Session, group: str) -> str:
    """Return the largest label of the files in a group, or the last text; an empty text without labels."""
    labels = ExistingGroup(session, group).arrays.get(load_ledger(session, group).concat_dim or "")
    if labels is None or not labels.shape[0]:
        return ""
    calendar = str(labels.attrs.get("calendar", "standard"))
    steps = replace(NO_STEPS, units=labels.attrs.get("units"), calendar=calendar)  # type: ignore[arg-type]  # JSON
    values = read_labels(labels)
    return steps.label_text(values.max() if values.dtype.kind in "iuf" else values[-1])


def _quarantine(session: Session, table: PipelineIngest) -> set[str]:
    """Return the names in the ledger of a table of files that are left out."""
    ledgers = [load_ledger(session, path) for path in table.groups]
    return {ledger_name(name) for each in ledgers for name in each.url[each.quarantined].tolist()}


def quarantined(
    session: Session,
    table: PipelineIngest,
    folder: Path,
    *,
    since: Session | None = None,
    without: Iterable[str] = (),
    **options: Any,
) -> dict[str, str]:
    """Return the reasons why the ledger of a table has files that are left out, by the names of the files.

    Files that were left out in the version ``since`` are not among them, nor those whose names in the ledger
    are in ``without``.
    """
    left_out = _quarantine(session, table).difference(without)
    if since is not None and left_out:
        left_out -= _quarantine(since, table)
    try:
        urls = request_of(table, folder).files.urls if left_out else ()
    except InvalidInputError:  # no file matches now
        urls = ()
    urls = tuple(each for each in urls if ledger_name(each) in left_out)
    reasons = dict.fromkeys(left_out.difference(map(ledger_name, urls)), "unreadable: no file has this name")
    if not urls:
        return reasons
    request = request_of(replace(table, files=urls), Path(), **options)
    inspection, _ = inspect_for_group(request, session, table.group, again=True)
    reasons |= dict.fromkeys(
        inspection.files.names(range(len(inspection.urls))),
        "target: it does not fit the group, or was repaired",
    )
    return reasons | problems_of(inspection, inspection_report(request, inspection).fatal())


def _within(inspection: Inspection, existing: ExistingGroup, span: tuple[Label, Label]) -> NDArray[np.bool_]:
    """Return a mask of the files that have a label in a span."""
    steps, is_read = NO_STEPS, inspection.layout >= 0
    if not is_read.any():
        return is_read
    if inspection.dim is not None:
        dataset = Dataset.labelled(inspection, is_read, existing.stored_variables())
        steps = dataset.steps
    if steps.labels is None or steps.labels.dtype.kind not in "iuf":
        raise InvalidInputError(
            f"a span needs files that follow each other along times or numbers, got {inspection.urls[0]}"
        )
    low, high = _number(span[0], steps), _number(span[1], steps, is_end=True)
    inside = np.concatenate([[0], np.cumsum((steps.labels >= low) & (steps.labels <= high))])
    return np.asarray(inside[steps.start[1:]] > inside[steps.start[:-1]])


def _number(label: Label, steps: Steps, *, is_end: bool = False) -> float:
    """Return a label in the units of steps. A date is its first moment, or the last one at the end."""
    if isinstance(label, date) != is_time(steps.units):
        expected = "times" if is_time(steps.units) else "numbers"
        raise InvalidInputError(f"the span must be {expected}, as the labels of the files, got {label!r}")
    if not isinstance(label, date):
        return float(label)
    if isinstance(label, datetime) and label.tzinfo is not None:
        label = label.astimezone(UTC)
    moment = cftime.datetime(*label.timetuple()[:6], calendar=steps.calendar)
    if isinstance(label, datetime) or not is_end:
        return float(cftime.date2num(moment, steps.units))
    return float(np.nextafter(cftime.date2num(moment + timedelta(days=1), steps.units), -np.inf))


def _change(
    changed: NDArray[np.int64], seed: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the numbers of chunks, and two words for each that no other files give."""
    return changed, changed[:, None].astype(np.uint64) + seed
