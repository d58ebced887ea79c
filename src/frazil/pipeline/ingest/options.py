"""What is wanted of an ingest, and what is known of its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from frazil.jobs.versions import Input, Target
from frazil.pipeline.ingest.axis import Mode
from frazil.pipeline.ingest.inspection import Looked, Options
from frazil.pipeline.ingest.pattern import Expanded

type OnProblem = Literal["fail", "skip", "quarantine"]
type OnChange = Literal["fail", "ignore", "rewrite"]


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted: the arguments of `ingest`, and what is known of the files."""

    target: Target
    files: Expanded
    looked: Looked
    dim: str | None
    variables: frozenset[str] | None
    mode: Mode
    chunks: Mapping[str, int]
    encoding: Mapping[str, Mapping[str, Any]]
    virtual: bool
    on_problem: OnProblem
    on_change: OnChange
    allow: frozenset[str]
    unpack: bool
    options: Options

    def parameters(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "concat_dim": self.dim,
            "variables": None if self.variables is None else sorted(self.variables),
            "chunks": dict(self.chunks),
            "encoding": {name: sorted(map(repr, each.items())) for name, each in self.encoding.items()},
            "virtual": self.virtual,
            "on_problem": self.on_problem,
            "on_change": self.on_change,
            "unpack": self.unpack,
            "format": self.options.format,
            "source_group": self.options.group,
        }  # fmt: skip


def files_input(looked: Looked) -> Input:
    """All files, as an input of the job: their number and a digest of names and fingerprints."""
    hashed = hashlib.sha256("\0".join(looked.urls).encode())
    hashed.update(looked.fingerprint.tobytes())
    return Input("files", None, "", (f"{len(looked.urls)} files", looked.urls[0]), hashed.hexdigest()[:32])
