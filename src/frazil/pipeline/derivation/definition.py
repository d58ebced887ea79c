"""The definition of a derived array: the operation, its arguments, and its sources, as JSON in attributes.

An argument that is not a value of JSON is an object with the member ``$``, the kind of the value. Definitions
have no local paths and no credentials.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final, cast

import numpy as np
import xarray as xr
from xarray import groupers
from zarr.abc.codec import Codec

from frazil.arguments import misfit, named_function
from frazil.errors import InvalidInputError
from frazil.format.ids import NODE_ID_BYTES, id_from_text, id_to_text, is_id_text
from frazil.repository.session.session import Session

type Json = dict[str, Any]

_VERSION: Final = 1
#: The largest array that a definition holds, in bytes.
_MOST_BYTES: Final = 1 << 20
_KIND: Final = "$"


@dataclass(frozen=True, slots=True)
class SourceArray:
    """An array that an operation reads: its path, the id of its node, and the snapshot that was read.

    ``first_path`` is its path at the first run. The results have their names from there.
    """

    path: str
    node: str
    snapshot: str
    first_path: str

    def path_in(self, session: Session) -> str | None:
        """Return the path of the array in a session: of the node with its id, else its path."""
        table = session.workspace.node_table()
        rows = np.flatnonzero(
            (table.ids == np.frombuffer(id_from_text(self.node, NODE_ID_BYTES), np.uint8)).all(axis=1)
        )
        if len(rows):
            return str(table.paths.text(int(rows[0])))
        return self.path if session.workspace.is_array(self.path) else None


@dataclass(frozen=True, slots=True)
class Definition:
    """How derived arrays are computed.

    ``target`` is the group of the results. All arrays of one call have the same ``id``.
    """

    operation: str
    arguments: Json
    sources: tuple[SourceArray, ...]
    target: str = "/"

    @property
    def id(self) -> str:
        """The same for the same call, whatever version it has read, and wherever its sources are now."""
        arguments = {name: value for name, value in self.arguments.items() if name != "paths"}
        parts = [self.operation, arguments, [each.first_path for each in self.sources], self.target]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def as_json(self) -> Json:
        """Return the definition as attributes."""
        return {
            "version": _VERSION,
            "operation": self.operation,
            "arguments": self.arguments,
            "sources": [{name: getattr(each, name) for name in each.__slots__} for each in self.sources],
            "target": self.target,
        }

    @staticmethod
    def parse(document: Mapping[str, Any]) -> Definition | None:
        """Return the definition in attributes; None for what is no definition of this version."""
        try:
            sources = tuple(SourceArray(**each) for each in document["sources"])
            if document["version"] != _VERSION or not all(is_node_id(each.node) for each in sources):
                return None
            return Definition(document["operation"], document["arguments"], sources, document["target"])
        except (KeyError, TypeError):
            return None


def is_node_id(value: object) -> bool:
    """Return whether a value of an attribute is the id of a node."""
    return isinstance(value, str) and is_id_text(value, NODE_ID_BYTES)


def source_arrays(
    session: Session, paths: Sequence[str], first_paths: Mapping[str, str]
) -> tuple[SourceArray, ...]:
    """Return arrays of a session as sources, in the order of their paths."""
    snapshot = session.snapshot_id
    nodes = map(session.workspace.require_array, sorted(set(paths)))
    return tuple(
        SourceArray(node.path, id_to_text(node.id), snapshot, first_paths.get(node.path, node.path))
        for node in nodes
    )


# Arguments as JSON


def _array_json(values: np.ndarray[Any, Any]) -> Json:
    if values.dtype.kind == "O" or values.nbytes > _MOST_BYTES:
        raise TypeError("an array of objects, or of more than 1 MiB")
    data = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {_KIND: "array", "dtype": values.dtype.str, "shape": list(values.shape), "data": data}


def _array_of(value: Json) -> Any:
    data = np.frombuffer(base64.b64decode(value["data"]), np.dtype(value["dtype"]))
    return data.reshape(value["shape"]).copy()[() if not value["shape"] else ...]


def _labels_json(values: xr.DataArray) -> Json:
    coords = {
        str(name): [list(map(str, each.dims)), to_json(np.asarray(each.values))]
        for name, each in values.coords.items()
    }
    document = {"dims": list(map(str, values.dims)), "name": values.name, "coords": coords}
    return {_KIND: "labels", **document, "data": to_json(np.asarray(values.values))}


def _labels_of(value: Json) -> xr.DataArray:
    coords = {name: (dims, from_json(data)) for name, (dims, data) in value["coords"].items()}
    return xr.DataArray(from_json(value["data"]), coords, value["dims"], value["name"])


def _function_json(function: Callable[..., Any]) -> Json:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module in (None, "__main__") or not isinstance(name, str) or "<" in name:
        raise TypeError("a function that no module has under a name")
    return {_KIND: "function", "module": module, "name": name}


def _function_of(value: Json) -> Any:
    return named_function(f"{value['module']}:{value['name']}")


def to_json(value: Any) -> Any:
    """Return an argument as JSON. Raises ``TypeError`` for a value that a definition cannot hold."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if np.isfinite(value) else {_KIND: "number", "text": repr(value)}
        case np.ndarray() | np.generic():
            return _array_json(np.asarray(value))
        case tuple():
            return {_KIND: "tuple", "items": [to_json(each) for each in value]}
        case list():
            return [to_json(each) for each in value]
        case Mapping():
            return {str(name): to_json(each) for name, each in value.items()}
        case slice():
            return {
                _KIND: "slice",
                "parts": [to_json(each) for each in (value.start, value.stop, value.step)],
            }
        case xr.DataArray():
            return _labels_json(value)
        case datetime() | date():
            return {_KIND: "time", "text": value.isoformat()}
        case timedelta():
            return to_json(np.timedelta64(value))
        case groupers.Grouper() | groupers.Resampler():
            members = {
                each.name: getattr(value, each.name, None) for each in fields(cast("Any", value)) if each.init
            }
            return {_KIND: "grouper", "type": type(value).__name__, "members": to_json(members)}
        case _ if isinstance(value, Codec):
            return to_json(value.to_dict())
        case _ if is_dataclass(value) and not isinstance(value, type):
            changed = {each.name: getattr(value, each.name) for each in fields(value)}
            return {name: to_json(each) for name, each in changed.items()}
        case _ if callable(value):
            return _function_json(value)
    raise TypeError(f"a value of the type {type(value).__name__}")


_DECODERS: Final[dict[str, Callable[[Json], Any]]] = {
    "array": _array_of,
    "function": _function_of,
    "grouper": lambda value: getattr(groupers, value["type"])(**from_json(value["members"])),
    "labels": _labels_of,
    "number": lambda value: float(value["text"]),
    "slice": lambda value: slice(*map(from_json, value["parts"])),
    "tuple": lambda value: tuple(map(from_json, value["items"])),
    "time": lambda value: datetime.fromisoformat(value["text"]),
}


def from_json(value: Any) -> Any:
    """Return an argument from its JSON. Raises ``InvalidInputError`` for what this version does not know."""
    if isinstance(value, list):
        return [from_json(each) for each in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_KIND)
    if kind is None:
        return {name: from_json(each) for name, each in value.items()}
    if kind == "unknown":
        raise misfit(f"the definition has an argument that was not stored: {value['reason']}")
    if kind not in _DECODERS:
        raise misfit(f"an argument must be of a kind that this version of Frazil knows, got {kind!r}")
    try:
        return _DECODERS[kind](value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise misfit(f"an argument of the kind {kind!r} is damaged: {error}") from error


def fields_to_json(operation: Any) -> Json:
    """Return the fields of an operation that differ from their defaults, as JSON."""
    out: Json = {}
    for each in fields(operation):
        value = getattr(operation, each.name)
        if each.default is not MISSING and value is each.default:
            continue
        try:
            # A list stands for a tuple of names or numbers, so that the JSON is plain.
            out[each.name] = to_json(list(value) if isinstance(value, tuple) else value)
        except TypeError as error:
            out[each.name] = {_KIND: "unknown", "reason": str(error)}
    return out


def fields_from_json(arguments: Json) -> Json:
    """Return the fields of an operation from their JSON: the inverse of `fields_to_json`."""
    values = {name: from_json(value) for name, value in arguments.items()}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
