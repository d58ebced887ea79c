"""Windows of arrays in a random order, as batches for training.

The sample dimension of the arrays is cut into *blocks* of whole chunks. An epoch reads the blocks in a random
order, some of them in a *round*, and mixes the windows of a round. So each chunk is read and decoded
once in an epoch, in large reads, while windows that follow each other in a batch come from distant places.
A window that spans two blocks belongs to the round of the later one. Until then, the loader keeps the edge
of the earlier block: as many elements as a window has, less one.

The order of the windows depends on the seed, the epoch, the version and the arguments alone. Threads that
read ahead do not change it.

>>> import frazil, numpy as np, zarr
>>> from frazil.loader import Windows
>>> repo = frazil.Repository.create("ice")
>>> with repo.transaction("main", message="temperatures") as store:
...     t = zarr.create_array(store, name="t", shape=(100, 2), chunks=(10, 2), dtype="f4")
...     t[:] = np.arange(200).reshape(100, 2)
>>> windows = Windows("ice", ["t"], window=24, batch_size=16, seed=1)
>>> len(windows), next(iter(windows))["t"].shape
(5, (16, 24, 2))
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import batched, product
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import wrong_type
from frazil.arrays.array import Array
from frazil.arrays.encoding import encoding_of
from frazil.cf import Coding, coding_of
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.format.columns import I64
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.handle.addresses import open_address
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.threads import Purpose, in_order, map_bounded, thread_pool

if TYPE_CHECKING:
    jax: Any
    torch: Any
else:
    jax, torch = ModuleOnDemand("jax"), ModuleOnDemand("torch")

__all__ = ["Windows"]

type _Arrays = dict[str, NDArray[Any]]

#: The blocks of a round, if the bound of memory allows it.
_MIXED: Final = 8


@dataclass(frozen=True, slots=True)
class _Variable:
    """An array whose first dimension is the sample dimension, and how its elements become values."""

    array: Array
    coding: Coding
    dtype: np.dtype[Any]
    chunk: int

    @property
    def row_bytes(self) -> int:
        """The bytes of the values at one position of the sample dimension."""
        return math.prod(self.array.shape[1:]) * self.dtype.itemsize

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the values at some positions of the sample dimension."""
        return np.asarray(self.coding.decode_with_nan(self.array[start:stop]), self.dtype)


def _variable(session: Session, path: str, *, decode: bool) -> _Variable:
    array = Array(session, path)
    if array.ndim < 1:
        raise InvalidInputError(
            f"variables must have a sample dimension, got the scalar `{array.path}`",
            ErrorKind.INVALID_ARGUMENT,
        )
    coding = coding_of(array.attrs, array.dtype) if decode else Coding(array.dtype)
    dtype = coding.decode_with_nan(np.zeros(0, array.dtype)).dtype
    encoding = encoding_of(session.workspace.require_array(array.path).user_data)
    chunk: Any = 1 if encoding is None else encoding.lengths[0]
    if encoding is not None and encoding.shards is not None:
        chunk *= encoding.shards.counts[0]
    # Chunks of several lengths: blocks are as long as the longest one.
    return _Variable(array, coding, dtype, int(np.max(np.diff(chunk))) if np.ndim(chunk) else int(chunk))


@dataclass(frozen=True, slots=True)
class _Round:
    """The windows of a round, in their order.

    ``blocks`` are the numbers of the blocks to read. ``seams`` are the numbers of the blocks whose last
    windows reach into the next block, if the later one of the two is in this round. ``starts`` has the first
    position of each window, and ``parts`` the number of its block or seam: blocks first.
    """

    blocks: tuple[int, ...]
    seams: tuple[int, ...]
    starts: I64
    parts: I64


@dataclass(slots=True)
class Windows:
    """An iterator of batches: for each variable, an array of shape (batch, window, ...).

    One object is one epoch after the other: each ``for`` loop is an epoch, and continues where the state of
    the object is. The version is found once, so all epochs see the same data.

    Args:
        source: An address ``LOCATION[@VERSION][:GROUP]``, or a read-only `Session`.
        variables: Paths of arrays, below the group of the address. Their first dimension is the sample
            dimension, and has the same length in all of them.
        window: Number of consecutive elements of the sample dimension in a window.
        stride: Distance of the first elements of windows that follow each other. Default: 1.
        batch_size: Number of windows in a batch. Default: 32.
        shuffle: Whether the order is random. Default: True.
        seed: Seed of the order. Default: 0.
        rank: Number of this process, of ``world_size`` processes that train together: each gets other
            windows. Default: 0.
        world_size: Number of these processes. Default: 1.
        drop_last: Whether to leave out a last batch that is smaller. Default: False.
        decode: Whether to decode values by the CF conventions: packed numbers, NaN for missing values.
            Default: True.
        memory: Bound for the decoded values in memory, in bytes. Default: 1 GiB.

    Raises:
        InvalidInputError: ``invalid-argument`` for variables of different lengths, a window that is longer
            than they are, and a bound of memory that does not hold three blocks of one chunk each.
        NodeNotFoundError: ``node-not-found`` if an array is missing.
    """

    source: str | PathLike[str] | Session
    variables: Sequence[str]
    window: int
    stride: int = 1
    batch_size: int = 32
    shuffle: bool = True
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    drop_last: bool = False
    decode: bool = True
    memory: int = 1 << 30
    _session: Session = field(init=False, repr=False)
    _variables: dict[str, _Variable] = field(init=False, repr=False)
    _length: int = field(init=False, repr=False)
    _block: int = field(init=False, repr=False)
    _mixed: int = field(init=False, repr=False)
    _epoch: int = field(init=False, repr=False, default=0)
    _batches: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        for name in ("window", "stride", "batch_size", "world_size", "memory"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise _wrong(f"{name} must be a whole number of at least 1, got {value!r}")
        if not 0 <= self.rank < self.world_size:
            raise _wrong(f"rank must be from 0 to {self.world_size - 1}, got {self.rank!r}")
        if isinstance(self.variables, str) or not self.variables:
            raise wrong_type("variables", self.variables, "sequence of paths")
        root = "/"
        if isinstance(self.source, Session):
            self._session = self.source
        else:
            self._session, root = open_address(self.source)
        if not self._session.read_only:
            raise _wrong("source must be an address or a read-only session, got a session that writes")
        self._variables = {
            name: _variable(self._session, absolute(f"{root}/{name}".replace("//", "/")), decode=self.decode)
            for name in self.variables
        }
        lengths = {name: each.array.shape[0] for name, each in self._variables.items()}
        if len(set(lengths.values())) != 1:
            raise _wrong(f"variables must have one length of their first dimension, got {lengths}")
        self._length = next(iter(lengths.values()))
        if self.window > self._length:
            raise _wrong(
                f"window must be at most the length of the variables, {self._length}, got {self.window}"
            )
        self._plan_memory()

    def _plan_memory(self) -> None:
        """Choose the length of blocks and their number in a round: two rounds and all edges are in memory."""
        chunk = math.lcm(*(each.chunk for each in self._variables.values()))
        chunk = min(max(chunk, math.ceil(self.window / chunk) * chunk), self._length)
        row = max(1, sum(each.row_bytes for each in self._variables.values()))
        blocks = math.ceil(self._length / chunk)
        edges = 2 * (self.window - 1) * row * blocks
        free = self.memory - (edges if self.shuffle else 2 * (self.window - 1) * row)
        rounds = free // (2 * chunk * row)
        if rounds < 1:
            raise _wrong(
                f"memory must be at least {self.memory - free + 2 * chunk * row:,} bytes, for blocks of "
                f"{chunk} elements, got {self.memory:,}"
            )
        self._mixed = min(rounds, _MIXED) if self.shuffle else 1
        self._block = min(chunk * (rounds // self._mixed), math.ceil(blocks / (4 * self._mixed)) * chunk)

    @property
    def snapshot_id(self) -> str:
        """The id of the snapshot that all epochs read."""
        return self._session.snapshot_id

    def __len__(self) -> int:
        """Return the number of batches of the current epoch."""
        count = sum(len(plan.starts) for plan in self._rounds())
        return count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, which is a value for JSON. `load_state_dict` continues there.

        Returns:
            The version, the arguments, the epoch, and the number of its batches so far.

        Examples:
            >>> import frazil, numpy, zarr
            >>> with frazil.Repository.create("ice-state").transaction("main", message="rows") as store:
            ...     array = zarr.create_array(store, name="t", data=numpy.arange(50))
            >>> windows = Windows("ice-state", ["t"], window=5)
            >>> first = next(iter(windows))
            >>> windows.state_dict()["batches"]
            1
        """
        return {**self._arguments(), "epoch": self._epoch, "batches": self._batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the last batch of a state, in another process too.

        Args:
            state: A result of `state_dict`.

        Raises:
            InvalidInputError: ``invalid-argument`` if the state is of another version or of other arguments.

        Examples:
            >>> import frazil, numpy, zarr
            >>> with frazil.Repository.create("ice-load").transaction("main", message="rows") as store:
            ...     array = zarr.create_array(store, name="t", data=numpy.arange(50))
            >>> windows, others = Windows("ice-load", ["t"], window=5), Windows("ice-load", ["t"], window=5)
            >>> first = next(iter(windows))
            >>> others.load_state_dict(windows.state_dict())
            >>> len(others), len(list(others))
            (2, 1)
        """
        other = {name: value for name, value in self._arguments().items() if state.get(name) != value}
        if other:
            name, value = next(iter(other.items()))
            raise _wrong(f"the state must have {name} {value!r} as this loader, got {state.get(name)!r}")
        self._epoch, self._batches = int(state["epoch"]), int(state["batches"])

    def _arguments(self) -> dict[str, Any]:
        names = (
            "window",
            "stride",
            "batch_size",
            "shuffle",
            "seed",
            "rank",
            "world_size",
            "drop_last",
            "memory",
        )
        own = {name: getattr(self, name) for name in names}
        return {"snapshot_id": self.snapshot_id, "variables": list(self.variables), **own}

    def _rounds(self) -> list[_Round]:
        """Return the rounds of the current epoch, in their order."""
        count = math.ceil(self._length / self._block)
        order = np.arange(count)
        if self.shuffle:
            order = np.random.default_rng((self.seed, self._epoch)).permutation(count)
        own = order[self.rank :: self.world_size].tolist()
        is_own, is_read = np.zeros(count + 1, np.bool_), np.zeros(count + 1, np.bool_)
        is_own[own] = True
        rounds: list[_Round] = []
        for blocks in batched(own, self._mixed):  # once for each round of many chunks
            is_new = np.zeros(count + 1, np.bool_)
            is_new[list(blocks)] = True
            is_read |= is_new
            pairs = is_read[:-1] & is_read[1:] & (is_new[:-1] | is_new[1:])
            seams = np.flatnonzero(pairs).tolist()
            ranges = [self._starts_in(block, reaches=not is_own[block + 1]) for block in blocks]
            ranges += [self._starts_of_seam(block) for block in seams]
            starts = np.concatenate(ranges)
            parts = np.repeat(np.arange(len(ranges)), [len(each) for each in ranges])
            if self.shuffle:
                random = np.random.default_rng((self.seed, self._epoch, len(rounds)))
                chosen = random.permutation(len(starts))
            else:
                chosen = np.argsort(starts)
            rounds.append(_Round(blocks, tuple(seams), starts[chosen], parts[chosen]))
        return rounds

    def _multiples(self, low: int, high: int) -> I64:
        """Return the first positions of windows from ``low`` up to ``high``."""
        high = min(high, self._length - self.window + 1)
        return np.arange(-(-low // self.stride) * self.stride, max(high, 0), self.stride)

    def _starts_in(self, block: int, *, reaches: bool) -> I64:
        """Return the windows in a block, and those that reach into the next one if it is not read here."""
        end = (block + 1) * self._block
        return self._multiples(block * self._block, end if reaches else end - self.window + 1)

    def _starts_of_seam(self, block: int) -> I64:
        """Return the windows that begin in a block and reach into the next one."""
        end = (block + 1) * self._block
        return self._multiples(max(end - self.window + 1, block * self._block), end)

    def __iter__(self) -> Iterator[_Arrays]:
        """Yield the batches of the current epoch that are left. Then the next epoch is the current one."""
        rounds = self._rounds()
        ends = np.cumsum([len(plan.starts) for plan in rounds])
        position = self._batches * self.batch_size
        first = int(np.searchsorted(ends, position, "right"))
        skipped = position - int(ends[first - 1]) if first else position
        own = {block for plan in rounds for block in plan.blocks}
        rest: list[_Arrays] = []
        edges: dict[tuple[int, str], _Arrays] = {}
        with thread_pool(Purpose.CHUNK_DECODING, 1) as pool:
            read = partial(self._read, own=own)
            for plan, blocks in zip(
                rounds[first:], in_order(partial(pool.submit, read), rounds[first:], 1), strict=True
            ):
                parts = self._parts(plan, blocks, edges, own)
                indices = np.arange(skipped, len(plan.starts))
                skipped = 0
                while len(indices) + sum(map(_size, rest)) >= self.batch_size:
                    most = self.batch_size - sum(map(_size, rest))
                    rest.append(self._gather(plan, parts, indices[:most]))
                    indices = indices[most:]
                    self._batches += 1
                    yield _joined(rest)
                    rest = []
                if len(indices):
                    rest.append(self._gather(plan, parts, indices))
        if rest and not self.drop_last:
            self._batches += 1
            yield _joined(rest)
        self._epoch, self._batches = self._epoch + 1, 0

    def _read(self, plan: _Round, own: set[int]) -> dict[int, _Arrays]:
        """Return the values of the blocks of a round, which are read at the same time."""

        def read(pair: tuple[int, str]) -> NDArray[Any]:
            block, name = pair
            start, stop = block * self._block, min((block + 1) * self._block, self._length)
            if block + 1 not in own:
                stop = min(stop + self.window - 1, self._length)
            return self._variables[name].read(start, stop)

        pairs = list(product(plan.blocks, self._variables))
        values: dict[int, _Arrays] = {block: {} for block in plan.blocks}
        for (block, name), array in zip(pairs, map_bounded(Purpose.WINDOW_READS, read, pairs), strict=True):
            values[block][name] = array
        return values

    def _parts(
        self, plan: _Round, blocks: dict[int, _Arrays], edges: dict[tuple[int, str], _Arrays], own: set[int]
    ) -> list[tuple[int, _Arrays]]:
        """Return the first position and the values of each block and seam. Keep the edges for later seams."""
        edge, parts = self.window - 1, [(block * self._block, blocks[block]) for block in plan.blocks]
        for block, values in blocks.items() if edge else ():
            stop = min((block + 1) * self._block, self._length) - block * self._block
            if block - 1 in own:
                edges[block, "head"] = {name: each[:edge].copy() for name, each in values.items()}
            if block + 1 in own:
                edges[block, "tail"] = {
                    name: each[max(stop - edge, 0) : stop].copy() for name, each in values.items()
                }
        for block in plan.seams:
            end = (block + 1) * self._block
            start = max(end - edge, block * self._block)
            # A loader that continues in the middle of an epoch has not read all earlier blocks.
            left = edges.pop((block, "tail"), None) or self._range(start, end)
            right = edges.pop((block + 1, "head"), None) or self._range(end, min(end + edge, self._length))
            parts.append((start, {name: np.concatenate([left[name], right[name]]) for name in left}))
        return parts

    def _range(self, start: int, stop: int) -> _Arrays:
        return {name: each.read(start, stop) for name, each in self._variables.items()}

    def _gather(self, plan: _Round, parts: list[tuple[int, _Arrays]], indices: I64) -> _Arrays:
        """Return some windows of a round."""
        starts, numbers = plan.starts[indices], plan.parts[indices]
        batch = {
            name: np.empty((len(indices), self.window, *each.array.shape[1:]), each.dtype)
            for name, each in self._variables.items()
        }
        for number in np.unique(numbers).tolist():
            first, values = parts[number]
            rows = np.flatnonzero(numbers == number)
            places = (starts[rows] - first)[:, None] + np.arange(self.window)
            for name, out in batch.items():
                out[rows] = values[name][places]
        return batch

    def torch(self, device: Any = None) -> Iterator[dict[str, Any]]:
        """Yield the batches as tensors of PyTorch. On the processor, they share the memory of the batches.

        The loader reads ahead in a thread, so it needs no ``DataLoader`` around it.

        Args:
            device: The device of the tensors. Default: the processor.

        Returns:
            An iterator of mappings of variables to tensors of shape (batch, window, ...).

        Raises:
            MissingExtraError: PyTorch is not installed.

        Examples:
            >>> for batch in windows.torch("cuda"):  # doctest: +SKIP
            ...     loss = model(batch["t2m"])
        """
        with needs("Windows.torch"):
            from_numpy = torch.from_numpy
        for batch in self:
            tensors = {name: from_numpy(values) for name, values in batch.items()}
            yield tensors if device is None else {name: each.to(device) for name, each in tensors.items()}

    def jax(self, device: Any = None) -> Iterator[dict[str, Any]]:
        """Yield the batches as arrays of JAX.

        Args:
            device: The device of the arrays. Default: that of JAX.

        Returns:
            An iterator of mappings of variables to arrays of shape (batch, window, ...).

        Raises:
            MissingExtraError: JAX is not installed.

        Examples:
            >>> for batch in windows.jax():  # doctest: +SKIP
            ...     loss = model(batch["t2m"])
        """
        with needs("Windows.jax"):
            put = jax.device_put
        for batch in self:
            yield {name: put(values, device) for name, values in batch.items()}


def _size(batch: _Arrays) -> int:
    return len(next(iter(batch.values())))


def _joined(batches: list[_Arrays]) -> _Arrays:
    first = batches[0]
    if len(batches) == 1:
        return first
    return {name: np.concatenate([each[name] for each in batches]) for name in first}


def _wrong(message: str) -> InvalidInputError:
    return InvalidInputError(message, ErrorKind.INVALID_ARGUMENT)
