"""Windows of arrays in a random order, as batches for training.

The sample dimension of the arrays is cut into *blocks* of whole chunks. An epoch reads the blocks in a random
order, some of them in a *round*, and mixes the windows of a round. So each chunk is read and decoded
once in an epoch, in large reads, while windows that follow each other in a batch come from distant places.
A window that spans two blocks belongs to the round of the later one. Until then, the loader keeps the edge
of the earlier block: as many elements as a window has, less one.

The order of the windows depends only on the seed, the epoch, the version and the arguments. Threads that
read ahead do not change it.

The processes of one training share the blocks of an epoch: each takes an equal part of the windows in the
order of the blocks. So two processes read one block only where their parts meet.

>>> import frazil, numpy as np, zarr
>>> from frazil.loader import TrainingWindows
>>> repo = frazil.Repository.create("ice")
>>> with repo.transaction("main", message="temperatures") as store:
...     t = zarr.create_array(store, name="t", shape=(100, 2), chunks=(10, 2), dtype="f4")
...     t[:] = np.arange(200).reshape(100, 2)
>>> windows = TrainingWindows("ice", ["t"], window=24, batch_size=16, seed=1)
>>> len(windows), next(iter(windows))["t"].shape
(5, (16, 24, 2))
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import batched, product
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import wrong_type
from frazil.arrays.array import Array
from frazil.arrays.encoding import encoding_of
from frazil.cf import Coding, coding_of
from frazil.cf_times import TimeUnits
from frazil.errors import InvalidInputError
from frazil.extras import needs
from frazil.format.columns import I64
from frazil.handle.addresses import open_address
from frazil.handle.repository import Repository
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.repository.target import MAIN
from frazil.threads import Purpose, in_order, map_bounded, thread_pool

if TYPE_CHECKING:
    jax: Any
    torch: Any
else:
    jax, torch = ModuleOnDemand("jax"), ModuleOnDemand("torch")

__all__ = ["TrainingWindows"]

type _Arrays = dict[str, NDArray[Any]]

#: The blocks of a round, if the bound of memory allows it.
_MIXED: Final = 8


@dataclass(frozen=True, slots=True)
class _WindowVariable:
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


def _variable(session: Session, path: str, *, decode: bool) -> _WindowVariable:
    array = Array(session, path)
    if array.ndim < 1:
        raise InvalidInputError(f"variables must have a sample dimension, got the scalar `{array.path}`")
    coding = coding_of(array.attrs, array.dtype) if decode else Coding(array.dtype)
    dtype = coding.decode_with_nan(np.zeros(0, array.dtype)).dtype
    encoding = encoding_of(session.workspace.require_array(array.path).user_data)
    chunk: Any = 1 if encoding is None else encoding.lengths[0]
    if encoding is not None and encoding.shards is not None:
        chunk *= encoding.shards.counts[0]
    # Chunks of several lengths: blocks are as long as the longest one.
    return _WindowVariable(
        array, coding, dtype, int(np.max(np.diff(chunk))) if np.ndim(chunk) else int(chunk)
    )


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


@dataclass(frozen=True, slots=True)
class _Share:
    """The windows of one process in an epoch: those that begin from ``low`` up to ``high`` of a block.

    ``blocks`` are the numbers of its blocks in their order. ``joins`` is True for a block if the process also
    has the begin of the next one, so that windows may span the two.
    """

    blocks: list[int]
    low: I64
    high: I64
    joins: NDArray[np.bool_]


@dataclass(slots=True)
class TrainingWindows:
    """An iterator of batches: for each variable, an array of shape (batch, window, ...).

    One object is one epoch after the other: each ``for`` loop is an epoch, and continues where the state of
    the object is. The version is found once, so all epochs see the same data.

    Args:
        source: An address ``LOCATION[@VERSION][:GROUP]``, a read-only `Session`, or a `Repository` for its
            branch ``main``.
        variables: Paths of arrays, below the group of the address. Their first dimension is the sample
            dimension, and has the same length in all of them.
        window: Number of consecutive elements of the sample dimension in a window.
        stride: Distance of the first elements of windows that follow each other. Default: 1.
        batch_size: Number of windows in a batch. Default: 32.
        shuffle: Whether the order is random. Default: True.
        seed: Seed of the order. Default: 0.
        rank: Number of this process, of ``world_size`` processes that train together: each gets other
            windows, and all get the same number of batches. Default: 0.
        world_size: Number of these processes. An epoch leaves out the windows that remain after an equal
            division, which are fewer than this number. Default: 1.
        drop_last: Whether to leave out a last batch that is smaller. Default: False.
        decode: Whether to decode values by the CF conventions: packed numbers, NaN for missing values.
            Default: True.
        memory: Bound for the decoded values in memory, in bytes. Default: 1 GiB.
        start: First position of the sample dimension, or its time as an ISO text, such as the begin of the
            years for validation. Default: the first.
        stop: Position after the last one, or its time. Default: the end.
        gaps: What to do with windows across a hole in time, where the step to the next element is not between
            0 and 1.5 times the usual step: ``"skip"`` leaves them out, ``"ignore"`` gives them. The default,
            None, leaves them out with a warning.

    Raises:
        InvalidInputError: ``invalid-argument`` for variables of different lengths, a window that is longer
            than they are, fewer windows than processes, and a bound of memory that does not hold three blocks
            of one chunk each.
        NodeNotFoundError: ``node-not-found`` if an array is missing.
    """

    source: str | PathLike[str] | Session | Repository
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
    start: int | str | None = None
    stop: int | str | None = None
    gaps: Literal["skip", "ignore"] | None = None
    _session: Session = field(init=False, repr=False)
    _variables: dict[str, _WindowVariable] = field(init=False, repr=False)
    _length: int = field(init=False, repr=False)
    _block: int = field(init=False, repr=False)
    _mixed: int = field(init=False, repr=False)
    _starts: I64 = field(init=False, repr=False)
    _end: int = field(init=False, repr=False)
    _epoch: int = field(init=False, repr=False, default=0)
    _batches: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        for name in ("window", "stride", "batch_size", "world_size", "memory"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise _wrong(f"{name} must be a whole number of at least 1, got {value!r}")
        if not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise _wrong(f"seed must be a whole number of at least 0, got {self.seed!r}")
        if self.gaps not in (None, "skip", "ignore"):
            raise _wrong(f"gaps must be 'skip', 'ignore' or None, got {self.gaps!r}")
        if not 0 <= self.rank < self.world_size:
            raise _wrong(f"rank must be from 0 to {self.world_size - 1}, got {self.rank!r}")
        if isinstance(self.variables, str) or not self.variables:
            raise wrong_type("variables", self.variables, "sequence of paths")
        root = "/"
        if isinstance(self.source, Session):
            self._session = self.source
        elif isinstance(self.source, Repository):
            self._session = self.source.readonly_session(MAIN)
        else:
            self._session, root = open_address(self.source)
        if not self._session.read_only:
            raise _wrong(
                "source must be an address, a repository or a read-only session, got a session that writes"
            )
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
        self._plan_windows()
        self._plan_memory()

    def _plan_windows(self) -> None:
        """Find the windows: between ``start`` and ``stop``, and across no hole in time."""
        first = next(iter(self._variables.values()))
        time = _time_of(self._session, first.array)
        ends = (0 if self.start is None else self.start, self._length if self.stop is None else self.stop)
        begin, self._end = (
            _position(name, value, time, self._length)
            for name, value in zip(("start", "stop"), ends, strict=True)
        )
        starts = np.arange(begin, self._end - self.window + 1, self.stride)
        if self.gaps != "ignore" and time is not None:
            holes = time.holes()
            crosses = np.searchsorted(holes, starts) != np.searchsorted(holes, starts + self.window - 1)
            if self.gaps is None and crosses.any():
                warnings.warn(
                    f"`{time.array.path}` has holes: {np.count_nonzero(crosses)} windows that cross them are "
                    "left out. gaps='skip' says that this is meant, gaps='ignore' gives these windows",
                    UserWarning,
                    stacklevel=4,
                )
            starts = starts[~crosses]
        if len(starts) < self.world_size:
            raise _wrong(
                f"each of {self.world_size} processes must have a window, got {len(starts)} windows of "
                f"length {self.window} from {begin} to {self._end}"
            )
        self._starts = starts

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
        count = len(self._starts) // self.world_size
        return count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Return the position, which is a value for JSON. `load_state_dict` continues there.

        Returns:
            The version, the arguments, the epoch, and the number of its batches so far.

        Examples:
            >>> import frazil, numpy, zarr
            >>> with frazil.Repository.create("ice-state").transaction("main", message="rows") as store:
            ...     array = zarr.create_array(store, name="t", data=numpy.arange(50))
            >>> windows = TrainingWindows("ice-state", ["t"], window=5)
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
            >>> windows, others = (TrainingWindows("ice-load", ["t"], window=5) for _ in range(2))
            >>> first = next(iter(windows))
            >>> others.load_state_dict(windows.state_dict())
            >>> len(others), len(list(others))
            (2, 1)
        """
        other = {name: value for name, value in self._arguments().items() if state.get(name) != value}
        if other:
            name, value = next(iter(other.items()))
            raise _wrong(f"the state must have {name} {value!r} as this loader, got {state.get(name)!r}")
        epoch, batches = int(state["epoch"]), int(state["batches"])
        if epoch < 0 or not 0 <= batches <= len(self):
            raise _wrong(
                f"the state must have 0 to {len(self)} batches of an epoch, got {batches} of {epoch}"
            )
        self._epoch, self._batches = epoch, batches

    def _arguments(self) -> dict[str, Any]:
        names = [each.name for each in fields(self) if each.init and each.name not in ("source", "decode")]
        own = {name: getattr(self, name) for name in names}
        return {"snapshot_id": self.snapshot_id, **own, "variables": list(self.variables)}

    def _share(self) -> _Share:
        """Return the part of this process in the current epoch."""
        count = math.ceil(self._length / self._block)
        order = np.arange(count)
        if self.shuffle:
            order = np.random.default_rng((self.seed, self._epoch)).permutation(count)
        edges = np.searchsorted(self._starts, np.arange(count + 1) * self._block)
        sizes = np.diff(edges)
        ends = np.cumsum(sizes[order])
        # the windows from `begin` up to `end`, in the order of the blocks
        size = len(self._starts) // self.world_size
        begin, end = self.rank * size, (self.rank + 1) * size
        skipped = np.clip(begin - (ends - sizes[order]), 0, sizes[order])
        left = np.clip(ends - end, 0, sizes[order])
        is_own = np.zeros(count + 1, np.bool_)
        is_own[order] = skipped + left < sizes[order]
        low, high = np.arange(count) * self._block, np.arange(1, count + 1) * self._block
        is_cut = (skipped > 0) & is_own[order], (left > 0) & is_own[order]
        first, last = (order[each] for each in is_cut)
        low[first] = self._starts[edges[first] + skipped[is_cut[0]]]
        high[last] = self._starts[edges[last + 1] - left[is_cut[1]]]
        joins = is_own[:-1] & is_own[1:]
        joins[:-1] &= (high[:-1] == low[1:]) & (low[1:] % self._block == 0)
        return _Share(order[is_own[order]].tolist(), low, high, joins)

    def _rounds(self, share: _Share) -> list[_Round]:
        """Return the rounds of the current epoch, in their order."""
        is_read = np.zeros(len(share.low) + 1, np.bool_)
        rounds: list[_Round] = []
        for blocks in batched(share.blocks, self._mixed):  # once for each round of many chunks
            is_new = np.zeros(len(is_read), np.bool_)
            is_new[list(blocks)] = True
            is_read |= is_new
            pairs = share.joins & is_read[:-1] & is_read[1:] & (is_new[:-1] | is_new[1:])
            seams = np.flatnonzero(pairs).tolist()
            ranges = [self._starts_in(share, block) for block in blocks]
            ranges += [self._starts_of_seam(share, block) for block in seams]
            starts = np.concatenate(ranges)
            parts = np.repeat(np.arange(len(ranges)), [len(each) for each in ranges])
            if self.shuffle:
                random = np.random.default_rng((self.seed, self._epoch, len(rounds)))
                chosen = random.permutation(len(starts))
            else:
                chosen = np.argsort(starts)
            rounds.append(_Round(blocks, tuple(seams), starts[chosen], parts[chosen]))
        return rounds

    def _between(self, low: int, high: int) -> I64:
        """Return the first positions of windows from ``low`` up to ``high``."""
        return self._starts[slice(*np.searchsorted(self._starts, (low, max(high, low))))]

    def _starts_in(self, share: _Share, block: int) -> I64:
        """Return the windows in a block, and those that reach into the next one if it is not read here."""
        end = int(share.high[block])
        return self._between(int(share.low[block]), end - self.window + 1 if share.joins[block] else end)

    def _starts_of_seam(self, share: _Share, block: int) -> I64:
        """Return the windows that begin in a block and reach into the next one."""
        end = int(share.high[block])
        return self._between(max(end - self.window + 1, int(share.low[block])), end)

    def __iter__(self) -> Iterator[_Arrays]:
        """Yield the batches of the current epoch that are left. Then the next epoch is the current one."""
        share = self._share()
        rounds = self._rounds(share)
        ends = np.cumsum([len(plan.starts) for plan in rounds])
        position = self._batches * self.batch_size
        first = int(np.searchsorted(ends, position, "right"))
        skipped = position - int(ends[first - 1]) if first else position
        rest: list[_Arrays] = []
        edges: dict[tuple[int, str], _Arrays] = {}
        with thread_pool(Purpose.CHUNK_DECODING, 1) as pool:
            read = partial(self._read, share=share)
            for plan, blocks in zip(
                rounds[first:], in_order(partial(pool.submit, read), rounds[first:], 1), strict=True
            ):
                parts = self._parts(plan, blocks, edges, share)
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

    def _read(self, plan: _Round, share: _Share) -> dict[int, _Arrays]:
        """Return the values of the blocks of a round, which are read at the same time."""

        def read(pair: tuple[int, str]) -> NDArray[Any]:
            block, name = pair
            start, stop = int(share.low[block]), int(share.high[block])
            stop = min(stop if share.joins[block] else stop + self.window - 1, self._end)
            return self._variables[name].read(start, stop)

        pairs = list(product(plan.blocks, self._variables))
        values: dict[int, _Arrays] = {block: {} for block in plan.blocks}
        for (block, name), array in zip(pairs, map_bounded(Purpose.WINDOW_READS, read, pairs), strict=True):
            values[block][name] = array
        return values

    def _parts(
        self, plan: _Round, blocks: dict[int, _Arrays], edges: dict[tuple[int, str], _Arrays], share: _Share
    ) -> list[tuple[int, _Arrays]]:
        """Return the first position and the values of each block and seam. Keep the edges for later seams."""
        edge, parts = self.window - 1, [(int(share.low[block]), blocks[block]) for block in plan.blocks]
        for block, values in blocks.items() if edge else ():
            stop = min(int(share.high[block]), self._end) - int(share.low[block])
            if block and share.joins[block - 1]:
                edges[block, "head"] = {name: each[:edge].copy() for name, each in values.items()}
            if share.joins[block]:
                edges[block, "tail"] = {
                    name: each[max(stop - edge, 0) : stop].copy() for name, each in values.items()
                }
        for block in plan.seams:
            end = int(share.high[block])
            start = max(end - edge, int(share.low[block]))
            # A loader that continues in the middle of an epoch has not read all earlier blocks.
            left = edges.pop((block, "tail"), None) or self._range(start, end)
            right = edges.pop((block + 1, "head"), None) or self._range(end, min(end + edge, self._end))
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
        with needs("TrainingWindows.torch"):
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
            InvalidInputError: ``invalid-argument`` for a variable that is not of numbers, and for integers
                that JAX would change, because it has 32 bits by default.
            MissingExtraError: JAX is not installed.

        Examples:
            >>> for batch in windows.jax():  # doctest: +SKIP
            ...     loss = model(batch["t2m"])
        """
        with needs("TrainingWindows.jax"):
            put, narrowed = jax.device_put, jax.dtypes.canonicalize_dtype
        narrow: dict[str, np.dtype[Any]] = {}
        for name, each in self._variables.items():
            if each.dtype.kind not in "biufc":
                raise _wrong(f"JAX must get numbers, got {each.dtype} in {name!r}. Leave out this variable")
            if narrowed(each.dtype) != each.dtype:
                narrow[name] = np.dtype(narrowed(each.dtype))
        if narrow:
            types = ", ".join(f"{name!r} as {dtype}" for name, dtype in narrow.items())
            warnings.warn(
                f"JAX holds {types}, which is narrower than the values. "
                "jax.config.update('jax_enable_x64', True) keeps them",
                UserWarning,
                stacklevel=2,
            )
        for batch in self:
            for name, dtype in narrow.items():
                if dtype.kind in "iu" and (batch[name].astype(dtype) != batch[name]).any():
                    raise _wrong(
                        f"JAX must get values that {dtype} holds, got larger ones in {name!r}. Enable 64 bits"
                    )
            yield {name: put(values, device) for name, values in batch.items()}


@dataclass(frozen=True, slots=True)
class _Time:
    """The coordinate of the sample dimension, if it has times: its numbers, with NaN for missing ones."""

    array: Array
    coding: Coding
    numbers: NDArray[np.float64]

    def holes(self) -> I64:
        """Return the positions whose next element is not one step later."""
        steps = np.diff(self.numbers)
        usual = np.nanmedian(steps) if np.isfinite(steps).any() else 0.0
        steps = steps * np.sign(usual)
        return np.flatnonzero(~((steps > 0) & (steps <= 1.5 * abs(usual))))


def _time_of(session: Session, array: Array) -> _Time | None:
    """Return the times of the sample dimension of an array, None without any."""
    group, name = array.path.rpartition("/")[0], (array.dimension_names or (None,))[0]
    node = session.workspace.node(f"{group}/{name}") if name else None
    if node is None or node.array is None or node.array.shape != array.shape[:1]:
        return None
    coordinate = Array(session, node.path)
    coding = coding_of(coordinate.attrs, coordinate.dtype)
    if not coding.calendar and coordinate.dtype.kind != "M":
        return None
    elements = coordinate[...]
    numbers = elements.view(np.int64) if elements.dtype.kind == "M" else elements
    missing = np.isnat(elements) if elements.dtype.kind == "M" else coding.decode(elements)[1]
    numbers = numbers.astype(np.float64)
    return _Time(coordinate, coding, numbers if missing is None else np.where(missing, np.nan, numbers))


def _position(name: str, value: Any, time: _Time | None, length: int) -> int:
    """Return the position that ``start`` or ``stop`` means: that of a time; negative ones from the end."""
    if isinstance(value, int | np.integer):
        if not -length <= value <= length:
            raise _wrong(f"{name} must be a position of the {length} elements, got {value}")
        return int(value) % length if value < 0 else int(value)
    if not isinstance(value, str) or time is None:
        raise _wrong(
            f"{name} must be a position, or an ISO time of a sample dimension with times, got {value!r}"
        )
    units = time.coding.times or TimeUnits("microseconds since 1970-01-01", "proleptic_gregorian")
    moment = units.parse(np.array(value), name)
    if time.coding.times is None:
        number = float(moment.astype(time.array.dtype).astype(np.int64))
    else:
        number = float(units.encode(moment, None, name))
    return int(np.count_nonzero(time.numbers < number))


def _size(batch: _Arrays) -> int:
    return len(next(iter(batch.values())))


def _joined(batches: list[_Arrays]) -> _Arrays:
    first = batches[0]
    if len(batches) == 1:
        return first
    return {name: np.concatenate([each[name] for each in batches]) for name in first}


def _wrong(message: str) -> InvalidInputError:
    return InvalidInputError(message)
