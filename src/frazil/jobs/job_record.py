"""The record of a job in the metadata of a commit, with checked types.

Any writer can put any value under the key `JOB`. A value that is not a map is not a record. A map whose
fields have other types than those that Frazil writes is damaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

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
    fields: dict[str, Any] = {name: record.get(name) for name in _TYPES}
    fields["outputs"] = record.get("outputs", [])
    fields["inputs"] = [] if fields["inputs"] is None else fields["inputs"]
    for name, expected in _TYPES.items():
        value = fields[name]
        is_right = value is None or isinstance(value, expected)
        if name == "outputs":
            is_right = _are_texts(value)
        elif name == "inputs":
            is_right = isinstance(value, list) and all(map(_is_input, value))
        if not is_right:
            raise FormatError(
                f"snapshot {snapshot_id}: the record of a job must have the field {name} as Frazil "
                f"writes it, got {str(value)[:80]}. Another program wrote it. Amend the commit with other "
                "metadata"
            )
    metrics = fields["metrics"]
    return JobRecord(
        fields["name"],
        fields["id"],
        fields["parameters"],
        tuple(
            Input(
                each["repository"], each.get("branch"), each["snapshot"], tuple(each["paths"]), each["digest"]
            )
            for each in fields["inputs"]
        ),
        tuple(fields["outputs"]),
        None if metrics is None else {key: metrics[key] for key in Metrics.__slots__ if key in metrics},
    )


_TYPES: Final = {"name": str, "id": str, "parameters": dict, "inputs": list, "outputs": list, "metrics": dict}


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _is_input(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("branch"), str | None):
        return False
    return _are_texts(value.get("paths")) and _are_texts(
        [value.get(name) for name in ("repository", "snapshot", "digest")]
    )
