from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import InitVar, field
from threading import Thread
from typing import Any, ClassVar

import pytest

from frazil import records

STANDARD: Any = dataclasses.dataclass
DEFERRED: Any = records._dataclass


def classes(decorator: Any) -> dict[str, type]:
    """Return classes of all kinds that the code has."""

    @decorator(frozen=True, slots=True)
    class Frozen:
        """A frozen class."""

        count: int
        names: tuple[str, ...] = ()
        table: dict[str, int] = field(default_factory=dict, hash=False, repr=False)
        note: str = field(default="", compare=False, kw_only=True)

    @decorator(frozen=True, slots=True, repr=False)
    class Shown(Frozen):
        kind: ClassVar[str] = "shown"
        start: InitVar[int] = 1
        end: int = field(init=False)

        def __post_init__(self, start: int) -> None:
            object.__setattr__(self, "end", start + 1)

        def __repr__(self) -> str:
            return "a class with its own text"

    @decorator(slots=True)
    class Changing:
        count: int
        rows: list[int] = field(default_factory=list)
        is_saved: bool = field(default=False, init=False, compare=False)

    @decorator(frozen=True, slots=True, eq=False)
    class Identity[T]:
        value: T

    @decorator(frozen=True, slots=True)
    class Equal:
        value: int

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    return {each.__name__: each for each in (Frozen, Shown, Changing, Identity, Equal)}


def answers(kinds: dict[str, type], name: str) -> list[Any]:
    """Return what a class and its objects answer."""
    cls: Any = kinds[name]
    arguments = (1,) if name != "Shown" else (1, ("a",), {"b": 2})
    first, second, other = cls(*arguments), cls(*arguments), cls(2)
    results: list[Any] = [str(inspect.signature(cls)), cls.__match_args__, repr(first), repr(other)]
    results += [first == second, first == other, first != second, first.__eq__(1)]
    results += [(each.name, each.default) for each in dataclasses.fields(cls)]
    results += [dataclasses.replace(first, **dict(zip(cls.__match_args__[:1], (7,), strict=True))) == first]
    results += [copy.copy(first) == first, copy.deepcopy(first) == first, cls.__init__.__qualname__]

    def error(call: Any) -> None:
        try:
            results.append(call())
        except (TypeError, AttributeError) as raised:
            results.append((type(raised), str(raised)))

    field_name = dataclasses.fields(cls)[0].name
    error(lambda: cls())
    error(lambda: cls(1, unknown=2))
    error(lambda: setattr(first, field_name, 9))
    error(lambda: delattr(second, field_name))
    error(lambda: hash(other) == hash(cls(2)))
    error(lambda: dataclasses.asdict(other))
    return results


@pytest.mark.parametrize("name", classes(STANDARD))
def test_a_class_is_that_of_the_standard_library(name: str) -> None:
    assert answers(classes(DEFERRED), name) == answers(classes(STANDARD), name)


@pytest.mark.parametrize("first_use", [repr, hash, lambda value: value == value, copy.copy])
def test_any_method_may_be_the_first(first_use: Any) -> None:
    cls: Any = classes(DEFERRED)["Frozen"]
    value = object.__new__(cls)
    value.__setstate__([1, (), {}, ""])
    first_use(value)
    assert value == cls(1)


def test_methods_are_made_on_their_first_use() -> None:
    cls: Any = classes(DEFERRED)["Frozen"]
    assert not inspect.isfunction(vars(cls)["__init__"])
    cls(1)
    assert all(inspect.isfunction(vars(cls)[name]) for name in ("__init__", "__repr__", "__eq__", "__hash__"))


def test_threads_may_make_them_at_the_same_time() -> None:
    cls: Any = classes(DEFERRED)["Frozen"]
    values: list[Any] = []
    threads = [Thread(target=lambda: values.append(cls(1))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [cls(1)] * 8


@DEFERRED(frozen=True, slots=True)
class Stored:
    """A class that a pickle can name."""

    key: str
    size: int = 0


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Stored("a", 3))) == Stored("a", 3)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'key'"):
        Stored("a").key = "b"
