"""The encoded configuration is the flexbuffer of the present values, whatever was encoded before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frazil.errors import InvalidMetadataError
from frazil.format import flexbuffer
from frazil.format.repo_info import encoded_config


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1, True, 1.0, "1"], id="equal values of other types"),
        pytest.param([[1, 2], (1, 2), [2, 1]], id="sequences"),
        pytest.param([{"b": 1, "a": 2}, {"a": 2, "b": 1}, {}], id="maps"),
        pytest.param([np.float64(0.5), np.arange(3), np.int64(7)], id="values of numpy"),
    ],
)
def test_every_value_has_its_own_bytes(values: list[Any]) -> None:
    for value in [*values, *values]:
        assert encoded_config({"x": value}) == flexbuffer.dumps({"x": value})


def test_a_changed_configuration_is_encoded_again() -> None:
    config: dict[str, Any] = {"inner": {"x": 1}}
    before = encoded_config(config)
    config["inner"]["x"] = 2
    assert before != encoded_config(config) == flexbuffer.dumps({"inner": {"x": 2}})


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, float("nan"), "\ud800", object()])
def test_a_value_that_is_not_like_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidMetadataError):
        encoded_config({"x": value})
