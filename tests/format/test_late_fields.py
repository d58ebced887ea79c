"""Fields that are decoded at the first use."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from frazil.errors import FormatError
from frazil.format.envelope import LateFields, complete, with_late_fields


@dataclasses.dataclass(frozen=True, slots=True)
class Point(LateFields):
    x: int
    y: int
    label: str = ""


def late(calls: list[str]) -> Point:
    def decode() -> dict[str, Any]:
        calls.append("decode")
        return {"y": 2, "label": "p"}

    return with_late_fields(Point, {"x": 1}, dict.fromkeys(("y", "label"), decode))


def test_a_group_is_decoded_once_at_the_first_read() -> None:
    calls: list[str] = []
    point = late(calls)
    assert (point.x, calls) == (1, [])
    assert (point.label, point.y, calls) == ("p", 2, ["decode"])


@pytest.mark.parametrize(
    "use",
    [
        lambda point: pickle.loads(pickle.dumps(point)),
        copy.copy,
        copy.deepcopy,
        dataclasses.replace,
        complete,
    ],
)
def test_uses_of_all_fields_decode_them(use: Any) -> None:
    assert use(late([])) == Point(1, 2, "p")
    assert hash(use(late([]))) == hash(Point(1, 2, "p"))
    assert repr(use(late([]))) == "Point(x=1, y=2, label='p')"


@pytest.mark.parametrize("point", [Point(1, 2), late([])])
def test_other_names_are_errors(point: Point) -> None:
    assert not hasattr(point, "z")
    with pytest.raises(AttributeError, match="'Point' object has no attribute 'z'"):
        point.z  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 3  # type: ignore[misc]


def test_errors_come_at_each_read_and_from_complete() -> None:
    def damaged() -> dict[str, Any]:
        raise FormatError("repo: damaged")

    inner = with_late_fields(Point, {"x": 1, "label": ""}, {"y": damaged})
    outer = with_late_fields(Point, {"x": 1, "label": ""}, {"y": lambda: {"y": inner}})
    for _ in range(2):
        with pytest.raises(FormatError):
            inner.y  # noqa: B018
    assert outer.y is inner
    with pytest.raises(FormatError):
        complete(outer)
