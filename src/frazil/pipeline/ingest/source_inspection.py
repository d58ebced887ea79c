"""Inspects the files of a request, and reports on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from frazil.jobs.engine import Engine
from frazil.jobs.engines import engine_of
from frazil.jobs.progress import Progress
from frazil.jobs.run_options import Run
from frazil.pipeline.ingest.axis import Mode
from frazil.pipeline.ingest.dimension import Growth, dimension, scalar_instead
from frazil.pipeline.ingest.file_report import InspectionSpec
from frazil.pipeline.ingest.gaps import holes
from frazil.pipeline.ingest.inspection import Inspection, inspect_all
from frazil.pipeline.ingest.notes import notes
from frazil.pipeline.ingest.options import IngestRequest
from frazil.pipeline.ingest.problems import refusal
from frazil.pipeline.ingest.reconcile import reconcile
from frazil.pipeline.ingest.references import without_container
from frazil.pipeline.ingest.report import Report
from frazil.storage.urls import parse_url


def inspect_request(
    request: IngestRequest,
    engine: Engine,
    growth: Growth,
    fingerprints: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Inspect the files along the dimension in which they follow each other.

    Files without such a dimension may have a scalar with a different value in each file. Then they are
    inspected again along that scalar. Files whose fingerprint is still the one in ``fingerprints`` (by URL)
    are not opened.
    """
    files = request.files
    dim = request.concat_dim or dimension(files, request.access, growth)
    spec = InspectionSpec(request.access, dim, request.virtual, request.variables)
    inspection = inspect_all(files, spec, engine, fingerprints=fingerprints, progress=progress)
    if dim is None or dim in (request.concat_dim, files.concat_dim, growth.concat_dim):
        return inspection
    scalar = scalar_instead(inspection, dim)
    if scalar is None:
        return inspection
    spec = replace(spec, dim=scalar)
    return inspect_all(files, spec, engine, fingerprints=fingerprints, progress=progress)


def inspect_for_new_group(request: IngestRequest, run: Run) -> Inspection:
    """Inspect files for a group that does not exist yet, and raise the errors that its ingest would raise."""
    engine = engine_of(run.engine)
    growth = new_group_growth(request.mode)
    inspection = inspect_request(request, engine, growth, progress=run.progress)
    if problems := inspection_report(request, inspection).fatal():
        raise refusal(problems, len(inspection.urls))
    if request.virtual and not request.containers:
        raise without_container(parse_url(inspection.urls[0]).chunk_location, inspection.urls[0])
    return inspection


def inspection_report(request: IngestRequest, inspection: Inspection, unchanged: int = 0) -> Report:
    """Return the report on files that are compared with each other, but not with a group."""
    reconciliation = reconcile(inspection, unpack=request.unpack, allow=request.allow)
    steps, one_file, refused = reconciliation.steps, reconciliation.one_file_each, reconciliation.refused
    gaps = [
        replace(each, fatal="hole" not in request.allow)
        for each in holes(steps.axis, steps.units, steps.calendar, one_file=one_file, refused=refused)
    ]
    problems = (*inspection.problems, *reconciliation.problems, *gaps, *notes(reconciliation))
    return Report(reconciliation, problems, unchanged)


def new_group_growth(mode: Mode) -> Growth:
    """Return the growth of a group without arrays."""
    return Growth(from_nothing=mode not in ("create", "insert"))
