"""Unknown options of operations are refused with a suggestion."""

from __future__ import annotations

from typing import Any

import pytest

import frazil
from frazil import pipeline


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
