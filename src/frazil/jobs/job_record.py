"""The record of a job in the metadata of a commit, with checked types.

Any writer can put any value under the key `JOB`. A value that is not a map is not a record. A map whose
fields have other types than those that Frazil writes is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frazil.errors import FormatError
from frazil.jobs.job_result import Metrics
from frazil.jobs.versions import Input
from frazil.repository.catalog.job_entry import JOB


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What a commit records about its job. ``metrics`` has only the fields of `Metrics`."""

    name: str | None
    id: str | None
    parameters: dict[str, Any] | None
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    metrics: dict[str, Any] | None


def job_record(metadata: Mapping[str, Any], snapshot_id: str) -> JobRecord | None:
    """Return the record of the job that made a commit; None if no job made it.

    inputs as Frazil writes it, got 5. Another program wrote it. Amend the commit with other metadata
    """
    record = metadata.get(JOB)
    if not isinstance(record, dict):
        return None
    reader = _Fields(record, snapshot_id)
    metrics = reader.value("metrics", dict)
    return JobRecord(
        reader.value("name", str),
        reader.value("id", str),
        reader.value("parameters", dict),
        tuple(reader.input(each) for each in reader.value("inputs", list) or ()),
        tuple(reader.texts("outputs", record.get("outputs", []))),
        None if metrics is None else {key: metrics[key] for key in Metrics.__slots__ if key in metrics},
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    record: dict[str, Any]
    snapshot_id: str

    def value(self, name: str, expected: type) -> Any:
        """Return a field, or None if it is absent."""
        value = self.record.get(name)
        if value is not None and not isinstance(value, expected):
            raise self.damaged(name, value)
        return value

    def texts(self, name: str, values: object) -> list[str]:
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise self.damaged(name, values)
        return values

    def input(self, value: object) -> Input:
        if not isinstance(value, dict):
            raise self.damaged("inputs", value)
        texts = self.texts("inputs", [value.get(name) for name in ("repository", "snapshot", "digest")])
        branch = value.get("branch")
        if branch is not None and not isinstance(branch, str):
            raise self.damaged("inputs", value)
        paths = tuple(self.texts("inputs", value.get("paths")))
        return Input(texts[0], branch, texts[1], paths, texts[2])

    def damaged(self, name: str, value: object) -> FormatError:
        return FormatError(
            f"snapshot {self.snapshot_id}: the record of a job must have the field {name} as Frazil "
            f"writes it, got {str(value)[:80]}. Another program wrote it. Amend the commit with other "
            "metadata"
        )
