"""The options of operations: the signatures list them, and unknown ones are refused with a suggestion."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import frazil
from frazil import pipeline

RUN = {"engine", "job_id", "message", "progress"}
TRANSFORMS = (
    "coarsen",
    "crop",
    "map_blocks",
    "pyramid",
    "rechunk",
    "recompress",
    "regrid",
    "select",
)
REDUCTIONS = (
    *("reduce", "mean", "sum", "min", "max", "std", "count", "quantile"),
    *("groupby", "climatology", "resample", "zonal_stats"),
)


@pytest.mark.parametrize("name", [*TRANSFORMS, *REDUCTIONS, "anomaly", "materialize", "write_audit_publish"])
def test_a_signature_lists_all_options(name: str) -> None:
    parameters = inspect.signature(getattr(pipeline, name)).parameters
    kinds = {each.kind for each in parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    if name in TRANSFORMS:
        assert parameters.keys() >= RUN | {"max_mem"}
    elif name in REDUCTIONS:
        assert parameters.keys() >= RUN | {"weights", "skipna", "limits", "q", "to"}
    else:
        assert "engine" in parameters


@pytest.mark.parametrize(
    "call",
    [
        lambda repo, **options: pipeline.mean(repo, "t", **options),
        lambda repo, **options: pipeline.quantile(repo, "t", 0.5, **options),
        lambda repo, **options: pipeline.rechunk(repo, ["t"], (1,), **options),
        lambda repo, **options: pipeline.map_blocks(abs, repo, ["t"], to=pipeline.Target(repo), **options),
        lambda repo, **options: pipeline.anomaly(repo, "t", repo, **options),
    ],
)
def test_an_unknown_option_is_refused_with_a_suggestion(call: Any) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'enigne'\. Did you mean `engine`\?"):
        call(repo, enigne="inline")
