"""Inspects the files of a request along the dimension in which they follow each other, and reports on them.

The dimension, if the caller does not name it, is the dimension of the group, if the first file has it or a
scalar of its name; or the one dimension of the first file that is unlimited or a time; or else the scalar
whose value differs from file to file (see `Dataset`). A single file has no such dimension, and its variables
stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from frazil.cf_times import is_time
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.jobs.engine import Engine
from frazil.jobs.engines import engine_of
from frazil.jobs.progress import Progress
from frazil.jobs.run_options import Run
from frazil.pipeline.ingest.axis import Mode
from frazil.pipeline.ingest.dataset import Dataset, scalar_instead, scalar_time
from frazil.pipeline.ingest.file_access import FileAccess
from frazil.pipeline.ingest.file_report import InspectionSpec
from frazil.pipeline.ingest.gaps import holes
from frazil.pipeline.ingest.inspection import Inspection, inspect_all
from frazil.pipeline.ingest.notes import notes
from frazil.pipeline.ingest.options import IngestRequest
from frazil.pipeline.ingest.pattern import SourceFiles
from frazil.pipeline.ingest.problems import refusal
from frazil.pipeline.ingest.references import without_container
from frazil.pipeline.ingest.report import Report
from frazil.readers.reader import FileSchema
from frazil.remedies import argument
from frazil.storage.urls import parse_url

#: The number of files that are tried until one can be read.
_TRIED: Final = 100


@dataclass(frozen=True, slots=True)
class Growth:
    """The dimension in which a group grew, and the names of all its dimensions with labels.

    ``from_nothing``: the group has no arrays yet, and more files may follow a first single file.
    """

    concat_dim: str | None = None
    dims: frozenset[str] = field(default_factory=frozenset)
    from_nothing: bool = False


NO_GROWTH: Final = Growth()


def dimension(files: SourceFiles, access: FileAccess, growth: Growth = NO_GROWTH) -> str | None:
    """Return the dimension that the first readable file has; None if that file does not decide it."""
    if files.concat_dim is not None:
        return files.concat_dim
    schema = _first_schema(files, access)
    if schema is None:
        return None
    scalars = {name for name, each in schema.variables.items() if not each.dims}
    if growth.concat_dim is not None and growth.concat_dim in scalars | schema.dims.keys():
        return growth.concat_dim
    times = [name for name in schema.coords if is_time(schema.variables[name].attrs.get("units"))]
    for names in (sorted(growth.dims & scalars), sorted(schema.unlimited), times):
        if len(names) == 1:
            return names[0]
    if len(files.urls) > 1 and (schema.unlimited or times):
        several = sorted({*schema.unlimited, *times})
        raise InvalidInputError(
            f"files can follow each other in several dimensions, {', '.join(several)}, as in {schema.url}",
            ErrorKind.INVALID_ARGUMENT,
        ).with_remedy("Choose one with {}", argument(concat_dim=several[0]))
    return scalar_time(schema.variables) if growth.from_nothing and len(files.urls) == 1 else None


def _first_schema(files: SourceFiles, access: FileAccess) -> FileSchema | None:
    for url in files.urls[:_TRIED]:
        try:
            with access.open(url) as reader:
                return reader.schema()
        except IcechunkError:
            continue
    return None


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
    dataset = Dataset.reconcile(inspection, unpack=request.unpack, allow=request.allow)
    steps, one_file, refused = dataset.steps, dataset.one_file_each, dataset.refused
    gaps = [
        replace(each, fatal="hole" not in request.allow)
        for each in holes(steps.axis, steps.units, steps.calendar, one_file=one_file, refused=refused)
    ]
    problems = (*inspection.problems, *dataset.problems, *gaps, *notes(dataset))
    return Report(dataset, problems, unchanged)


def new_group_growth(mode: Mode) -> Growth:
    """Return the growth of a group without arrays."""
    return Growth(from_nothing=mode not in ("create", "insert"))
