"""What ``test_parity`` does not look at: every public class and function as they are at run time.

Both libraries are imported and compared: modules and their lists of names, kinds and defaults of parameters,
what is awaited, members and numbers of enumerations, variants of families, the tree of exceptions and how
they are made, printed and pickled. Names that are missing altogether are ``test_parity``'s.
"""

from __future__ import annotations

import enum
import inspect
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from tests.parity.test_parity import ABSENT, resolve, surface

import frazil

ic = pytest.importorskip("icechunk")
pytestmark = [pytest.mark.deep, pytest.mark.interop]

#: Users get these from functions; what their constructors take is nobody's business.
NOT_CONSTRUCTED = {"Repository", "Session", "ForkSession", "IcechunkStore"}


def _pairs() -> dict[str, tuple[Any, Any]]:
    """Every public thing of the reference once, with ours."""
    pairs: dict[str, tuple[Any, Any]] = {}
    for path, theirs in surface(ic).items():
        ours = resolve(path)
        if ours is not ABSENT and not any(theirs is each for each, _ in pairs.values()):
            pairs[path] = (theirs, ours)
    return pairs


def _classes(path: str, theirs: Any, ours: Any) -> Iterator[tuple[str, type, type]]:
    if inspect.isclass(theirs) and inspect.isclass(ours):
        yield path, theirs, ours
        for name, inner in vars(theirs).items():
            if inspect.isclass(inner) and not name.startswith("_") and hasattr(ours, name):
                yield from _classes(f"{path}.{name}", inner, getattr(ours, name))


PAIRS = _pairs()
CLASSES = {
    path: (a, b) for name, (theirs, ours) in PAIRS.items() for path, a, b in _classes(name, theirs, ours)
}


# Parameters


def _signature(value: Any) -> list[inspect.Parameter] | None:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (ValueError, TypeError):  # some compiled functions have none
        return None
    return [p for p in parameters if p.name.lstrip("$") not in ("self", "cls")]


def _default(parameter: inspect.Parameter) -> str:
    return repr(parameter.default).replace("icechunk", "frazil")


def _differences(theirs: Any, ours: Any) -> list[str]:
    a, b = _signature(theirs), _signature(ours)
    if a is None or b is None or any(p.kind is p.VAR_KEYWORD for p in a + b):
        return []
    differences = []
    by_name = {p.name: (number, p) for number, p in enumerate(b)}
    for number, want in enumerate(a):
        # `_0` is the name of a field without one
        at, mine = (number, b[number]) if want.name.startswith("_") else by_name.get(want.name, (-1, None))
        if mine is None:
            differences.append(f"{want.name}: missing")
        elif want.kind is not want.KEYWORD_ONLY and at != number:
            differences.append(f"{want.name}: at {at}, expected at {number}")
        elif want.kind is not want.KEYWORD_ONLY and mine.kind is mine.KEYWORD_ONLY:
            differences.append(f"{want.name}: only by name")
        elif want.kind is want.KEYWORD_ONLY and mine.kind is not want.KEYWORD_ONLY and at < number:
            differences.append(f"{want.name}: not only by name")
        elif want.default not in (want.empty, ...) and (
            mine.default is mine.empty or _default(want) != _default(mine)
        ):
            differences.append(f"{want.name}: default {_default(mine)}, expected {_default(want)}")
    names = {p.name for p in a} | {p.name for n, p in enumerate(b) if n < len(a)}
    differences += [f"{p.name}: required" for p in b if p.name not in names and p.default is p.empty]
    return differences


def _callables() -> Iterator[tuple[str, Any, Any]]:
    for path, (theirs, ours) in PAIRS.items():
        if not inspect.isclass(theirs) and callable(theirs):
            yield path, theirs, ours
    for path, (theirs, ours) in CLASSES.items():
        # Compiled classes answer with `object`'s if they have none.
        has_constructor = path not in NOT_CONSTRUCTED and {"__init__", "__new__"} & vars(theirs).keys()
        if has_constructor and not issubclass(ours, enum.Enum | BaseException):
            yield path, theirs, ours
        for name in vars(theirs):
            member = inspect.getattr_static(theirs, name)
            if name.startswith("_") or inspect.isclass(member) or not hasattr(ours, name):
                continue
            if callable(getattr(theirs, name)) and not isinstance(getattr(theirs, name), theirs):
                yield f"{path}.{name}", getattr(theirs, name), getattr(ours, name)


CALLABLES = {path: (theirs, ours) for path, theirs, ours in _callables()}


def test_parameters_have_their_kinds_places_and_defaults() -> None:
    differences: dict[str, list[str]] = {}
    for path, (theirs, ours) in CALLABLES.items():
        for difference in _differences(theirs, ours):
            differences.setdefault(path, []).append(difference)
    # An unbound function of the reference names what is `self` for us.
    differences.pop("ManifestSplittingConfig.to_dict", None)
    assert differences == {}
    assert len(CALLABLES) > 200


def test_what_is_awaited_is_awaited() -> None:
    differences = [
        path
        for path, (theirs, ours) in CALLABLES.items()
        if inspect.iscoroutinefunction(theirs) != inspect.iscoroutinefunction(ours)
    ]
    assert differences == []


# Classes


def _numbers(cls: Any) -> dict[str, Any]:
    """Members of an enumeration, compiled or not; what has no number has None."""
    if issubclass(cls, enum.Enum):
        return {name: member.value for name, member in cls.__members__.items()}
    return {name: int(member) for name, member in vars(cls).items() if isinstance(member, cls)}


def test_members_of_enumerations_have_their_numbers() -> None:
    differences = {}
    for path, (theirs, ours) in CLASSES.items():
        if issubclass(ours, enum.Enum):
            want, mine = _numbers(theirs), _numbers(ours)
            if path == "ErrorKind":  # Frazil has more
                mine = {name: mine.get(name) for name in want}
            if want != mine:
                differences[path] = (want, mine)
    assert differences == {}


@pytest.mark.parametrize("member", ["ChunkType.native", "RepoAvailability.read_only", "SpecVersion.v1"])
def test_members_are_equal_to_their_numbers_where_the_references_are(member: str) -> None:
    name, _, key = member.partition(".")
    for module in (ic, frazil):
        value = getattr(getattr(module, name), key)
        assert value == 1
        assert value != 2
        assert int(value) == 1
    ours = getattr(getattr(frazil, name), key)
    assert {ours: 3}[ours] == 3  # the reference's cannot be hashed
    assert pickle.loads(pickle.dumps(ours)) is ours  # nor pickled


def test_variants_belong_to_their_family() -> None:
    for path, (theirs, ours) in CLASSES.items():
        family = path.rpartition(".")[0]
        if family in CLASSES and issubclass(theirs, CLASSES[family][0]):
            assert issubclass(ours, CLASSES[family][1]), path
            assert not issubclass(int, CLASSES[family][1])
            match = getattr(theirs, "__match_args__", ())
            if match and match[0] == "_0":
                assert len(getattr(ours, "__match_args__", ())) >= len(match), path
                assert isinstance(inspect.getattr_static(ours, "_0"), property), path


def test_conditions_have_their_variants() -> None:
    for module in (ic, frazil):
        condition = module.ManifestPreloadCondition.true() | module.ManifestPreloadCondition.num_refs(1, 2)
        match condition:
            case module.ManifestPreloadCondition.Or([one, module.ManifestPreloadCondition.NumRefs()]):
                assert isinstance(one, getattr(module.ManifestPreloadCondition, "True"))
            case _:
                pytest.fail(f"no match: {condition!r}")
        match module.s3_credentials(access_key_id="a", secret_access_key="b"):
            case module.S3Credentials.Static(keys):
                assert keys.access_key_id == "a"


def test_values_that_are_equal_compare_equal() -> None:
    for module in (ic, frazil):
        assert module.CachingConfig(num_chunk_refs=1) == module.CachingConfig(num_chunk_refs=1)
        assert module.CachingConfig(num_chunk_refs=1) != module.CachingConfig()
        assert module.Attribution() != 3
        with pytest.raises(TypeError):
            module.Attribution() < module.Attribution()  # noqa: B015  # what it raises


# Exceptions

ERRORS = [name for name in ic.__all__ if name.endswith("Error")]
ARGUMENTS: dict[str, list[tuple[Any, ...]]] = {
    "ConflictError": [(), ("a",), ("a", "b"), ("a", "b", "text"), ("a", "b", "text", "io")],
    "RebaseFailedError": [("snapshot", [])],
}


@pytest.mark.parametrize("name", ERRORS)
def test_exceptions_are_constructed_printed_and_pickled_alike(name: str) -> None:
    for arguments in ARGUMENTS.get(name, [("text",), ("text", "io"), ("text", "my-own"), ("text", None)]):
        theirs, ours = getattr(ic, name)(*arguments), getattr(frazil, name)(*arguments)
        names = [key for key in vars(type(theirs)) if not key.startswith("_")]
        names += ["message", "kind"] if "text" in arguments and len(arguments) > 1 and arguments[-1] else []
        assert {key: getattr(ours, key) for key in names} == {key: getattr(theirs, key) for key in names}
        if "io" in arguments:
            assert ours.args == (("a", "b") if name == "ConflictError" else theirs.args)  # raised: those two
            assert repr(ours) == repr(theirs).replace("icechunk", "frazil")
            assert str(ours) == str(theirs)
        bases = [[base.__name__ for base in type(each).__mro__] for each in (ours, theirs)]
        assert bases[0] == bases[1]
        again = pickle.loads(pickle.dumps(ours))
        assert type(again) is type(ours)
        assert (again.args, again.message, again.kind) == (ours.args, ours.message, ours.kind)
    ours.add_note("and this")
    assert ours.__notes__ == ["and this"]
    with pytest.raises(TypeError):
        getattr(frazil, name)(1, 2, 3, 4, 5)


def test_functions_of_configurations() -> None:
    for module in (ic, frazil):
        rules = {module.ManifestSplitCondition.AnyArray(): {module.ManifestSplitDimCondition.Any(): 3}}
        config = module.config.from_dict(rules)
        assert config == module.ManifestSplittingConfig.from_dict(rules)
        assert repr(module.config.to_dict(config)) == repr(rules)  # the reference's are not equal
        assert getattr(module.ManifestPreloadCondition.NumRefs(1, 2), "from") == 1
    assert list(map(repr, ic.supported_spec_versions())) == list(map(repr, frazil.supported_spec_versions()))
