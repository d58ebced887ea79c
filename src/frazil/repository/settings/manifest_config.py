"""Settings of manifests: what to load ahead, how to split, how to store virtual locations.

Splitting. A rule is a condition on arrays and, for each of several conditions on dimensions, a number of
chunks. Every dimension takes the first size that fits: rules in order, those whose condition holds for
the array; in a rule, its dimension conditions in order. A dimension that no rule of the array names is not
split. (So a rule that names one dimension leaves the others to the rules after it.)
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from frazil.display import Check, Default, Settings, instance, unsigned
from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.settings.conditions import (
    AnyDimCondition,
    ManifestPreloadCondition,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
)

#: The size of a dimension that is not split: no array has more chunks along one.
UNSPLIT: Final = 2**32 - 1

type DimSizes = Sequence[tuple[AnyDimCondition, int]]
type SplitSizes = Sequence[tuple[ManifestSplitCondition, DimSizes]]
type ManifestSplitValues = Mapping[AnyDimCondition, int]
type SplitSizesDict = Mapping[ManifestSplitCondition, ManifestSplitValues]


@dataclass(slots=True, repr=False)
class ManifestPreloadConfig(Settings):
    """Which manifests to load when a session opens.

    At most ``max_total_refs`` references in all, of arrays for which ``preload_if`` holds, among the
    first ``max_arrays_to_scan``.
    """

    max_total_refs: int | None = None
    preload_if: ManifestPreloadCondition | None = None
    max_arrays_to_scan: int | None = None

    shown_as: ClassVar[str] = "config.ManifestPreloadConfig"
    _whole: ClassVar[bool] = True
    _fields: ClassVar[dict[str, Default | None]] = {
        "max_total_refs": Default(10_000),
        "preload_if": None,
        "max_arrays_to_scan": Default(50),
    }
    _checks: ClassVar[dict[str, Check]] = {
        "max_total_refs": unsigned(32),
        "preload_if": instance(ManifestPreloadCondition),
        "max_arrays_to_scan": unsigned(32),
    }


def _split_sizes(given: Any) -> list[tuple[ManifestSplitCondition, list[tuple[AnyDimCondition, int]]]] | None:
    """Checked and in the one shape: a list of pairs, with a list of pairs in each."""
    if given is None:
        return None
    return [
        (_array_condition(array), [_dim_size(*_pair(pair)) for pair in _items(sizes)])
        for array, sizes in map(_pair, _items(given))
    ]


def _items(given: Any) -> Iterable[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise TypeError(f"split_sizes: expected a sequence of pairs, found {type(given).__name__}")
    return given


def _pair(given: Any) -> tuple[Any, Any]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"split_sizes: expected pairs of a condition and what it is for, found {given!r}")
    return given[0], given[1]


def _array_condition(condition: Any) -> ManifestSplitCondition:
    if not isinstance(condition, ManifestSplitCondition):
        raise TypeError(f"split_sizes: expected ManifestSplitCondition, found {type(condition).__name__}")
    return condition


def _dim_size(condition: Any, size: Any) -> tuple[AnyDimCondition, int]:
    if not isinstance(condition, ManifestSplitDimCondition):
        raise TypeError(f"split_sizes: expected ManifestSplitDimCondition, found {type(condition).__name__}")
    if isinstance(size, bool) or not isinstance(size, numbers.Integral):
        raise TypeError(f"split_sizes: expected a number of chunks, found {type(size).__name__}")
    size = int(size)
    if not 1 <= size <= UNSPLIT:
        raise InvalidInputError(
            f"split_sizes: expected 1 to {UNSPLIT} chunks, found {size}",
            ErrorKind.INVALID_MANIFEST_SPLIT_INDEX,
        )
    return condition, size  # type: ignore[return-value]  # a Family's variants are not its subclasses


@dataclass(slots=True, repr=False)
class ManifestSplittingConfig(Settings):
    """How many chunks along each dimension one manifest holds, by array and dimension.

    >>> config = ManifestSplittingConfig.from_dict(
    ...     {ManifestSplitCondition.AnyArray(): {ManifestSplitDimCondition.DimensionName("time"): 100}}
    ... )
    >>> split_sizes_for(config, "/t2m", ["time", "lat"], [1000, 10])
    (100, 4294967295)
    """

    split_sizes: SplitSizes | None = None

    shown_as: ClassVar[str] = "config.ManifestSplittingConfig"
    _whole: ClassVar[bool] = True
    _fields: ClassVar[dict[str, Default | None]] = {"split_sizes": None}
    _checks: ClassVar[dict[str, Check]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, _split_sizes(value) if name == "split_sizes" else value)

    @staticmethod
    def from_dict(split_sizes: SplitSizesDict) -> ManifestSplittingConfig:
        """The rules of a dictionary of dictionaries, in its order."""
        inner = split_sizes.values() if isinstance(split_sizes, Mapping) else ()
        for each in (split_sizes, *inner):
            if not isinstance(each, Mapping):
                raise TypeError(f"split_sizes: expected dictionaries, found {type(each).__name__}")
        return ManifestSplittingConfig([(array, list(sizes.items())) for array, sizes in split_sizes.items()])

    def to_dict(self) -> dict[ManifestSplitCondition, dict[AnyDimCondition, int]]:
        """The rules as a dictionary of dictionaries."""
        return {array: dict(sizes) for array, sizes in self.split_sizes or ()}


def from_dict(split_sizes: SplitSizesDict) -> ManifestSplittingConfig:
    """``ManifestSplittingConfig.from_dict``, as a function."""
    return ManifestSplittingConfig.from_dict(split_sizes)


def to_dict(config: ManifestSplittingConfig) -> dict[ManifestSplitCondition, dict[AnyDimCondition, int]]:
    """``ManifestSplittingConfig.to_dict``, as a function. Raises ``TypeError`` for what is no such value."""
    if not isinstance(config, ManifestSplittingConfig):
        raise TypeError(f"config: expected a ManifestSplittingConfig, found {type(config).__name__}")
    return config.to_dict()


def split_sizes_for(
    splitting: ManifestSplittingConfig | None,
    path: str,
    dimension_names: Sequence[str | None] | None,
    num_chunks: Sequence[int],
) -> tuple[int, ...]:
    """Chunks of one manifest along each dimension of the array at ``path``; ``UNSPLIT`` if not split.

    ``num_chunks`` has the number of chunks along each dimension, ``dimension_names`` their names or None.
    """
    rules = (splitting.split_sizes if splitting is not None else None) or ()
    sizes = [pair for array, dims in rules if array.holds(path) for pair in dims]
    names = dimension_names if dimension_names is not None else [None] * len(num_chunks)
    return tuple(
        next((size for condition, size in sizes if condition.holds(axis, name)), UNSPLIT)
        for axis, (name, _) in enumerate(zip(names, num_chunks, strict=True))
    )


@dataclass(slots=True, repr=False, init=False)
class ManifestVirtualChunkLocationCompressionConfig(Settings):
    """When to compress the locations of virtual chunks with a dictionary, and how.

    From ``min_num_chunks`` virtual chunks in a manifest; the dictionary is trained with
    ``dictionary_max_training_samples`` locations to at most ``dictionary_max_size_bytes``.
    """

    min_num_chunks: int | None
    dictionary_max_training_samples: int | None
    dictionary_max_size_bytes: int | None
    compression_level: int | None

    shown_as: ClassVar[str] = "config.ManifestVirtualChunkLocationCompressionConfig"
    _fields: ClassVar[dict[str, Default | None]] = {
        "min_num_chunks": Default(1000),
        "dictionary_max_training_samples": Default(100),
        "dictionary_max_size_bytes": Default(2048),
        "compression_level": Default(3),
    }
    _checks: ClassVar[dict[str, Check]] = {
        "min_num_chunks": unsigned(64),
        "dictionary_max_training_samples": unsigned(64),
        "dictionary_max_size_bytes": unsigned(64),
        "compression_level": instance(int),
    }

    def __init__(
        self,
        min_num_chunks: int | None = None,
        *,
        dictionary_max_training_samples: int | None = None,
        dictionary_max_size_bytes: int | None = None,
        compression_level: int | None = None,
    ) -> None:
        self.min_num_chunks = min_num_chunks
        self.dictionary_max_training_samples = dictionary_max_training_samples
        self.dictionary_max_size_bytes = dictionary_max_size_bytes
        self.compression_level = compression_level


#: One manifest for each array.
DEFAULT_SPLITTING: Final = ManifestSplittingConfig.from_dict(
    {ManifestSplitCondition.path_matches(".*"): {ManifestSplitDimCondition.Any(): UNSPLIT}}
)


@dataclass(slots=True, repr=False)
class ManifestConfig(Settings):
    """Settings of manifests."""

    preload: ManifestPreloadConfig | None = None
    splitting: ManifestSplittingConfig | None = None
    virtual_chunk_location_compression: ManifestVirtualChunkLocationCompressionConfig | None = None
    max_concurrent_manifest_fetches_during_commit: int | None = None

    shown_as: ClassVar[str] = "config.ManifestConfig"
    _fields: ClassVar[dict[str, Default | None]] = {
        "preload": Default(ManifestPreloadConfig()),
        "splitting": Default(DEFAULT_SPLITTING),
        "virtual_chunk_location_compression": Default(ManifestVirtualChunkLocationCompressionConfig()),
        "max_concurrent_manifest_fetches_during_commit": Default(1),
    }
    _checks: ClassVar[dict[str, Check]] = {
        "preload": instance(ManifestPreloadConfig),
        "splitting": instance(ManifestSplittingConfig),
        "virtual_chunk_location_compression": instance(ManifestVirtualChunkLocationCompressionConfig),
        "max_concurrent_manifest_fetches_during_commit": unsigned(16),
    }
