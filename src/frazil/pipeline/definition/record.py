"""The record of a pipeline in its repository: the definition as JSON, in the attributes of a hidden group.

Readers of a version learn from it what made the version; the explorer draws it. No run depends on it. It has
no local paths, no credentials, and only the options of an ingest that its job records, too. The hidden group
is in the group of the first files: two pipelines that start at the same time create no node in common.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from frazil.jobs.job import Job, Target, Tasks, Version
from frazil.pipeline.definition.tables import PipelineDerived, PipelineIngest, declaration_of
from frazil.pipeline.derivation.definition import fields_to_json, to_json
from frazil.pipeline.derivation.operation import add_attributes
from frazil.pipeline.ingest.options import IngestRequest, public_name
from frazil.pipeline.validation.rules import Rule
from frazil.repository.paths import HIDDEN
from frazil.repository.session.session import Session

type Json = dict[str, Any]

_VERSION: Final = 1
_RECORD: Final = f"{HIDDEN}/pipeline"


def record_of(
    name: str,
    ingest: Sequence[PipelineIngest],
    derived: Sequence[PipelineDerived],
    rules: Sequence[Rule],
    others: Mapping[str, Any],
) -> Json:
    """Return a definition as JSON that a stranger may read. ``others`` are values of JSON."""
    document = {
        "version": _VERSION,
        "name": name,
        **others,
        "ingest": [
            {
                "files": [public_name(file) for file in each.files],
                "groups": each.groups,
                "options": IngestRequest("-", **each.options).parameters(each.options.get("concat_dim")),
            }
            for each in ingest
        ],
        "derived": [
            {
                "operation": each.operation,
                "sources": each.sources,
                "to": each.to,
                "arguments": fields_to_json(declaration_of(each).operation),
            }
            for each in derived
        ],
        "rules": [each.as_dict() for each in rules],
    }
    plain: Json = to_json(json.loads(json.dumps(document, default=str)))  # NaN and infinity are texts
    return plain


def record_job(target: Target, record: Json) -> Job | None:
    """Return a job that stores a record. None: the branch of the target has it."""
    tip = Version.of(target.repo, branch=target.branch)
    path, *others = (f"{each['groups'][0].rstrip('/')}/{_RECORD}" for each in record["ingest"])
    if _stored(tip.session(), path) == record:
        return None

    def prepare(session: Session) -> Tasks:
        for each in others:  # another table was the first one
            if _stored(session, each).get("name") == record["name"]:
                session.workspace.delete_node(each)
        add_attributes(session, path, record)
        return Tasks([])

    message = f"Record the definition of the pipeline {record['name']}"
    parameters = {"snapshot": tip.snapshot_id}  # the same definition may come back
    return Job("record", target, prepare, no_work, parameters=parameters, writes=(path,), message=message)


def _stored(session: Session, path: str) -> Json:
    node = session.workspace.node(path)
    attributes: Json = {} if node is None else json.loads(node.user_data).get("attributes") or {}
    return attributes


def no_work(fork: Any, shared: Any, item: Any) -> Any:
    """Raise ``AssertionError``: it is the work of jobs without tasks."""
    raise AssertionError("this job has no tasks")
