"""Arrays as jobs see them: what is read, what is made, and the metadata of both.

A new array is its source's ``zarr.json`` with some members replaced. What a job does not know of, it keeps:
data types, fill values, attributes, codecs and extensions of any kind.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import zarr
from zarr.abc.codec import ArrayArrayCodec, Codec

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.versions import Target, Version, digest, same_storage
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at

type Shape = tuple[int, ...]
type Json = dict[str, Any]

#: How much one value of a type without a fixed size takes, about.
_VARIABLE: Final = 64
_SHARDING: Final = "sharding_indexed"
#: So many values are recorded as they are.
_SHORT: Final = 64
#: Codecs that make bytes of an array.
_SERIALIZERS: Final = frozenset(
    {"bytes", "vlen-utf8", "vlen-bytes", "vlen-array", "packbits", "pcodec", "zfpy"}
)
_SHARD_INDEX: Final = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"})


@dataclass(frozen=True)
class ArrayInfo:
    """One array of a version: its path and its ``zarr.json``."""

    path: str
    document: Json

    @cached_property
    def shape(self) -> Shape:
        return tuple(self.document["shape"])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @cached_property
    def grid(self) -> Shape:
        """The shape of what is written as one: a shard, or a chunk."""
        grid = self.document["chunk_grid"]
        if grid["name"] != "regular":
            raise InvalidInputError(
                f"expected an array with chunks of one shape, found a {grid['name']} grid in `{self.path}`",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        return tuple(grid["configuration"]["chunk_shape"])

    @property
    def shards(self) -> Shape | None:
        return None if self._sharding is None else self.grid

    @property
    def chunks(self) -> Shape:
        """The shape of what is decoded as one."""
        inner = self._sharding
        return self.grid if inner is None else tuple(inner["chunk_shape"])

    @property
    def codecs(self) -> list[Json]:
        """Those of a chunk, in a shard or not."""
        inner = self._sharding
        return list(self.document["codecs"] if inner is None else inner["codecs"])

    @property
    def _sharding(self) -> Json | None:
        first = self.document["codecs"][0]
        return first["configuration"] if first["name"] == _SHARDING else None

    @property
    def dims(self) -> tuple[str | None, ...]:
        names = self.document.get("dimension_names")
        return tuple(names) if names else (None,) * self.ndim

    @property
    def attributes(self) -> Json:
        return dict(self.document.get("attributes") or {})

    @cached_property
    def array(self) -> zarr.Array[Any]:
        """An empty array of this kind, for its data type and fill value."""
        self.grid  # noqa: B018  # refuses what is not regular
        store = zarr.storage.MemoryStore()
        zarr.core.sync.sync(
            store.set(
                "zarr.json", zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(self.encoded())
            )
        )
        return zarr.open_array(store, mode="r", zarr_format=3)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.array.dtype)

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory, estimated for strings and objects."""
        return _VARIABLE if self.dtype.kind in "OT" else max(self.dtype.itemsize, 1)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def group(self) -> str:
        return self.path.rpartition("/")[0] or "/"

    def axis(self, name: str | int) -> int | None:
        """The number of a dimension, by name or number; None if it has none of that name."""
        if isinstance(name, str):
            return self.dims.index(name) if name in self.dims else None
        return int(name) % self.ndim if -self.ndim <= int(name) < self.ndim else None

    def changed(
        self,
        path: str,
        *,
        shape: Shape | None = None,
        chunks: Shape | None = None,
        shards: Shape | None = None,
        codecs: list[Json] | None = None,
        **members: Any,
    ) -> ArrayInfo:
        """Another array, like this one but for what is given. With ``chunks`` its shards are ``shards``."""
        document = copy.deepcopy({**self.document, **members})
        if shape is not None:
            document["shape"] = list(shape)
        if chunks is None:
            chunks, shards = self.chunks, self.shards
        inner = codecs if codecs is not None else self.codecs
        if shards is not None:
            _require_multiple(path, chunks, shards)
            settings = self._sharding or {"index_codecs": list(_SHARD_INDEX), "index_location": "end"}
            inner = [
                {
                    "name": _SHARDING,
                    "configuration": {**settings, "chunk_shape": list(chunks), "codecs": inner},
                }
            ]
        document["codecs"] = inner
        grid = {"chunk_shape": list(chunks if shards is None else shards)}
        document["chunk_grid"] = {"name": "regular", "configuration": grid}
        return ArrayInfo(path, document)

    def retyped(
        self,
        path: str,
        dtype: Any,
        *,
        shape: Shape,
        dims: Sequence[str | None],
        chunks: Shape,
        shards: Shape | None = None,
        fill_value: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> ArrayInfo:
        """Another array of any type, with the compressors of this one if its codecs are as usual."""
        dtype = np.dtype(dtype)
        if fill_value is None:
            nothing = {"f": np.nan, "c": np.nan, "m": "NaT", "M": "NaT"}.get(dtype.kind)
            fill_value = np.zeros((), dtype)[()] if nothing is None else np.array(nothing, dtype)[()]
        named = list(dims) if any(name is not None for name in dims) else None
        made = zarr.create_array(
            zarr.storage.MemoryStore(),
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value=fill_value,
            dimension_names=named,
            attributes=self.attributes if attributes is None else dict(attributes),
        )
        document = _document(
            made.metadata.to_buffer_dict(zarr.core.buffer.default_buffer_prototype())["zarr.json"]
        )
        info = ArrayInfo(path, document)
        old, new = self.codecs, info.codecs
        if old[0]["name"] in _SERIALIZERS and new[0]["name"] in _SERIALIZERS:
            new = [new[0], *old[1:]]
        return info.changed(path, chunks=chunks, shards=shards, codecs=new)

    def encoded(self) -> bytes:
        return json.dumps(self.document).encode()

    def open(self, session: Session, mode: str = "r") -> zarr.Array[Any]:
        return open_array(session, self.path, mode)


def open_array(session: Session, path: str, mode: Any = "r") -> zarr.Array[Any]:
    return array_at(session, path, mode)


def _document(encoded: Any) -> Json:
    data = encoded.to_bytes() if hasattr(encoded, "to_bytes") else encoded
    document: Json = json.loads(data)
    return document


def _require_multiple(path: str, chunks: Shape, shards: Shape) -> None:
    if len(chunks) != len(shards) or any(map(np.remainder, shards, chunks)):
        raise InvalidInputError(
            f"expected shards of `{path}` that are a multiple of its chunks {chunks}, found {shards}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


# What is read


def selected(session: Session, paths: Sequence[str]) -> list[ArrayInfo]:
    """The arrays at these paths, and those below them, each once, in the order of their paths.

    Raises ``NodeNotFoundError`` for a path where nothing is.
    """
    if isinstance(paths, str):
        paths = [paths]
    workspace = session.workspace
    nodes = workspace.nodes.node_table()
    all_paths, rows = nodes.paths_list(), np.arange(len(nodes))
    found: dict[str, None] = {}
    for path in paths:
        absolute = "/" + path.strip("/")
        if workspace.nodes.require_node(absolute).array is not None:
            found[absolute] = None
        below = nodes.below(absolute)
        arrays = rows[below][nodes.is_array[below]]
        found.update(dict.fromkeys(map(all_paths.__getitem__, arrays.tolist())))
    return [info(session, path) for path in sorted(found)]


def info(session: Session, path: str) -> ArrayInfo:
    """One array. Raises ``InvalidInputError`` (``not-an-array``) for a group."""
    node = session.workspace.nodes.require_array("/" + path.strip("/"))
    return ArrayInfo(node.path, json.loads(node.user_data))


def companions(session: Session, arrays: Sequence[ArrayInfo]) -> list[ArrayInfo]:
    """The arrays, and the coordinates, bounds and grid mappings that belong to them by CF."""
    known = {each.path: each for each in arrays}
    waiting = list(arrays)
    while waiting:
        for path in named_by(waiting.pop()):
            node = None if path in known else session.workspace.nodes.node(path)
            if node is not None and node.array is not None:
                known[path] = info(session, path)
                waiting.append(known[path])
    return [known[path] for path in sorted(known)]


_NAMES: Final = ("coordinates", "bounds", "climatology", "grid_mapping", "ancillary_variables")


def named_by(array: ArrayInfo) -> Iterator[str]:
    """Paths that an array's dimensions and CF attributes name; nothing may be there."""
    names = [name for name in array.dims if name]
    for key in _NAMES:
        value = array.attributes.get(key)
        if isinstance(value, str):
            names += value.replace(":", " ").split()
    for name in names:
        yield f"{array.group.rstrip('/')}/{name}"


# What is made


def target_of(source: Version, to: Target | None) -> Target:
    """Where it goes unless told otherwise: back to where it came from."""
    return to or Target(source.repo, source.branch or "main")


def same_repository(source: Version, target: Target) -> bool:
    """Whether references to chunks of one are good in the other."""
    return target.repo is source.repo or target.repo.storage is source.repo.storage


def same_place(source: Version, target: Target) -> bool:
    """Whether a job writes to the branch that it reads, at the same paths."""
    same_branch = source.branch in (None, target.branch)
    return same_repository(source, target) and same_branch and target.group.strip("/") == ""


def require_unchanged(source: Session, target: Session, arrays: Sequence[ArrayInfo]) -> None:
    """Raises ``InvalidInputError`` if arrays are about to be replaced by what comes from an older version."""
    for array in arrays:
        if digest(source, [array.path]) != digest(target, [array.path]):
            raise InvalidInputError(
                f"expected the newest version of `{array.path}`, which changed since {source.snapshot_id}: "
                "take the tip of the branch, or write to another place with `to`",
                ErrorKind.NOT_ALLOWED,
            )


def create(session: Session, source: Session, old: ArrayInfo, new: ArrayInfo) -> None:
    """Make an array, in place of one that is there, and the groups that it is in.

    Groups that are missing get the attributes of those of the source. Raises ``InvalidInputError``
    (``not-an-array``) where a group is.
    """
    if new.document != old.document:
        try:
            new.array  # noqa: B018  # zarr has something to say about metadata that are wrong
        except (TypeError, ValueError, zarr.errors.BaseZarrError) as error:
            raise InvalidInputError(
                f"expected metadata for `{new.path}` that zarr can read: {error}",
                ErrorKind.INVALID_ARRAY_METADATA,
            ) from error
    workspace = session.workspace
    make_groups(session, source, old.group, new.group)
    there = workspace.nodes.node(new.path)
    if there is not None:
        workspace.nodes.require_array(new.path)
        workspace.nodes.delete_node(new.path)
    workspace.nodes.set_node(new.path, new.encoded())


def make_groups(session: Session, source: Session, old: str, new: str) -> None:
    """Make a group and those above it; ``old`` is the one that it comes from."""
    workspace, names = session.workspace, [name for name in new.split("/") if name]
    for depth in range(len(names) + 1):
        path = "/" + "/".join(names[:depth])
        there = workspace.nodes.node(path)
        if there is not None and there.array is not None:
            raise InvalidInputError(
                f"expected a group at `{path}` to make arrays in, found an array", ErrorKind.NOT_A_GROUP
            )
        if there is not None:
            continue
        document: Json = {"zarr_format": 3, "node_type": "group", "attributes": {}}
        up = len(names) - depth
        parts = [name for name in old.split("/") if name]
        if up <= len(parts):
            origin = source.workspace.nodes.node("/" + "/".join(parts[: len(parts) - up]))
            if origin is not None and origin.array is None:
                document["attributes"] = json.loads(origin.user_data).get("attributes") or {}
        workspace.nodes.set_node(path, json.dumps(document).encode())


def refuse_overwriting(
    source: Version, target: Target, old: Sequence[ArrayInfo], new: Sequence[ArrayInfo]
) -> None:
    """Raises ``InvalidInputError`` if an array would be written over one that is read, or be made twice."""
    if not new:
        raise InvalidInputError("expected paths of arrays, found none", ErrorKind.NOT_ALLOWED)
    require_once(new)
    if not same_storage(source, target) or target.branch != (source.branch or target.branch):
        return
    both = sorted({each.path for each in old} & {each.path for each in new})
    if both:
        raise InvalidInputError(
            f"expected a target other than the source, found `{both[0]}` in both: "
            "give `to=Target(repo, group=...)` or another branch",
            ErrorKind.NOT_ALLOWED,
        )


# What users say


def lengths(
    given: Sequence[int] | Mapping[Any, int] | None,
    array: ArrayInfo,
    default: Shape | None,
    what: str,
    *,
    inner: Shape | None = None,
) -> Shape | None:
    """A shape of chunks or shards, from a tuple, or from a mapping of dimensions; -1 is the whole axis.

    Shards are whole chunks (``inner``) all along the axis, and one of them where nothing is said. Raises
    ``InvalidInputError`` for a tuple of another length and for lengths below 1.
    """
    if given is None:
        return default
    out: list[Any]
    if isinstance(given, Mapping):
        out = list(default or inner or array.chunks)
        for name, length in given.items():
            axis = array.axis(name)
            if axis is not None:
                out[axis] = length
    else:
        out = list(given) if isinstance(given, Sequence) else []
    ones = inner or (1,) * len(out)
    whole = [
        -(-max(n, 1) // one) * one if length == -1 else length
        for length, n, one in zip(out, array.shape, ones, strict=False)
    ]
    integers = all(isinstance(length, int | np.integer) for length in whole)
    if len(out) != array.ndim or not integers or any(length < 1 for length in whole):
        raise InvalidInputError(
            f"expected {what} of {array.ndim} lengths for `{array.path}`, found {given}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    return tuple(map(int, whole))


def require_once(new: Sequence[ArrayInfo]) -> None:
    """Raises ``InvalidInputError`` if an array is made twice."""
    twice = [path for path, count in Counter(each.path for each in new).items() if count > 1]
    if twice:
        raise InvalidInputError(f"expected each result once, found `{twice[0]}` twice", ErrorKind.NOT_ALLOWED)


def require_dimensions(names: Sequence[Any], arrays: Sequence[ArrayInfo]) -> None:
    """Raises ``InvalidInputError`` for a dimension that no array has."""
    for name in names:
        if all(array.axis(name) is None for array in arrays):
            known = ", ".join(sorted({str(dim) for array in arrays for dim in array.dims if dim}))
            raise InvalidInputError(
                f"expected a dimension of the arrays ({known or 'none has a name'}), found {name!r}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )


def codec_documents(given: Sequence[Codec | Mapping[str, Any]] | None, old: list[Json]) -> list[Json] | None:
    """A chain of codecs as metadata: as given; with the old serializer if there is none in it.

    A ``bytes`` codec that names no byte order gets the old one.
    """
    if given is None:
        return None
    if not all(isinstance(each, Codec | Mapping) for each in given):
        raise InvalidInputError(
            f"expected codecs of zarr or their metadata, found {given!r}", ErrorKind.INVALID_ARRAY_METADATA
        )
    chain = [dict(each) if isinstance(each, Mapping) else dict(each.to_dict()) for each in given]
    chain = [_with_byte_order(each, old) for each in chain]
    if any(each["name"] in _SERIALIZERS or each["name"] == _SHARDING for each in chain):
        return chain
    serializers = [each for each in old if each["name"] in _SERIALIZERS]
    before = [each for each, codec in zip(chain, given, strict=True) if _of_arrays(each, codec)]
    return [*before, *serializers, *(each for each in chain if each not in before)]


def _with_byte_order(document: Json, old: list[Json]) -> Json:
    serializer = next((each for each in old if each["name"] == "bytes"), None)
    if document["name"] != "bytes" or serializer is None:
        return document
    return {**serializer, **document}


def _of_arrays(document: Json, codec: Codec | Mapping[str, Any]) -> bool:
    """Whether a codec makes arrays of arrays, and so comes before the serializer."""
    return isinstance(codec, ArrayArrayCodec) or document["name"] == "transpose"


# What is recorded


def told(value: Any) -> Any:
    """A value for the parameters of a job: what is long, by its hash.

    >>> told(slice(3, "b")), told([1, 2]), told(range(1000))["size"]
    (['3', 'b', 'None'], [1, 2], 1000)
    """
    if isinstance(value, slice):
        return [str(value.start), str(value.stop), str(value.step)]
    values = np.asarray(value)
    if values.size <= _SHORT:
        return values.tolist() if values.dtype.kind in "iufb" else values.astype(str).tolist()
    content = values.tobytes() if values.dtype.kind != "O" else repr(values.tolist()).encode()
    hashed = hashlib.sha256(content).hexdigest()[:24]
    return {
        "size": values.size,
        "first": told(values.flat[0]),
        "last": told(values.flat[-1]),
        "sha256": hashed,
    }
