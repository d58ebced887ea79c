"""The configuration of manifests: preloading, splitting, compression of virtual locations.

Every dimension takes the first size that fits: first in the order of the rules whose condition holds for the
array, then in the order of the dimension conditions in a rule. A dimension without a size is not split.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.options import Settings, option, unsigned
from frazil.repository.settings.conditions import (
    AnyDimCondition,
    ManifestPreloadCondition,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
)

#: The size of a dimension that is not split. No array has more chunks along a dimension.
UNSPLIT: Final = 2**32 - 1

type DimSizes = Sequence[tuple[AnyDimCondition, int]]
type SplitSizes = Sequence[tuple[ManifestSplitCondition, DimSizes]]
type ManifestSplitValues = Mapping[AnyDimCondition, int]
type SplitSizesDict = Mapping[ManifestSplitCondition, ManifestSplitValues]


@dataclass(slots=True, repr=False)
class ManifestPreloadConfig(Settings):
    """Which manifests to load when a session opens.

    Attributes:
        max_total_refs: How many chunk references to load in total, at most. Default: 10,000.
        preload_if: The condition on arrays. Default: small coordinate arrays, by their usual names.
        max_arrays_to_scan: How many arrays to look at. Default: 50.
    """

    max_total_refs: int | None = option(10_000, unsigned(32))
    preload_if: ManifestPreloadCondition | None = None
    max_arrays_to_scan: int | None = option(50, unsigned(32))

    whole = True


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0:
        raise TypeError(f"split_sizes must be a sequence of pairs, got {type(value).__name__}")
    pairs = list(value)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"split_sizes must contain pairs of a condition and its sizes, got {pair!r}")
    return [(pair[0], pair[1]) for pair in pairs]


def _split_sizes(value: Any) -> list[tuple[ManifestSplitCondition, list[tuple[AnyDimCondition, int]]]] | None:
    """Return the sizes, checked and in one shape: a list of pairs, each with a list of pairs."""
    if value is None:
        return None
    rules: list[tuple[ManifestSplitCondition, list[tuple[AnyDimCondition, int]]]] = []
    for array, sizes in _pairs(value):
        if not isinstance(array, ManifestSplitCondition):
            raise wrong_type("each rule of split_sizes", array, "ManifestSplitCondition")
        rules.append((array, []))
        for dim, size in _pairs(sizes):
            if not isinstance(dim, ManifestSplitDimCondition):
                raise wrong_type("each condition of a size", dim, "ManifestSplitDimCondition")
            if isinstance(size, bool) or not isinstance(size, numbers.Integral):
                raise wrong_type("a size in split_sizes", size, "int")
            if not 1 <= int(size) <= UNSPLIT:
                raise InvalidInputError(
                    f"a size in split_sizes must be 1 to {UNSPLIT} chunks, got {size}",
                    ErrorKind.INVALID_MANIFEST_SPLIT_INDEX,
                )
            rules[-1][1].append((dim, int(size)))  # type: ignore[arg-type]  # variants are not its subclasses
    return rules


@dataclass(slots=True, repr=False)
class ManifestSplittingConfig(Settings):
    """How many chunks along each dimension one manifest contains, by array and dimension.

    Attributes:
        split_sizes: Rules: pairs of a condition on arrays, and pairs of a condition on dimensions and a
            number of chunks. The first size that fits a dimension counts. Default: one manifest for each
            array.

    Examples:
        >>> sizes = {ManifestSplitDimCondition.DimensionName("time"): 100}
        >>> config = ManifestSplittingConfig.from_dict({ManifestSplitCondition.AnyArray(): sizes})
        >>> split_sizes_for(config, "/t2m", ["time", "lat"], [1000, 10])
        (100, 4294967295)
        >>> ManifestSplittingConfig.from_dict(config.to_dict()) == config
        True
    """

    split_sizes: SplitSizes | None = None

    whole = True

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, _split_sizes(value) if name == "split_sizes" else value)

    @staticmethod
    def from_dict(split_sizes: SplitSizesDict) -> ManifestSplittingConfig:
        """Create the configuration from a dictionary of dictionaries.

        Args:
            split_sizes: Numbers of chunks by conditions on dimensions, by conditions on arrays. The order
                counts: the first size that fits a dimension is used.

        Returns:
            The configuration.

        Raises:
            TypeError: If a key or a value has another type.
            InvalidInputError: ``invalid-manifest-split-index`` if a number of chunks is not between 1 and
                4294967295.
        """
        inner = split_sizes.values() if isinstance(split_sizes, Mapping) else ()
        for each in (split_sizes, *inner):
            if not isinstance(each, Mapping):
                raise TypeError(f"split_sizes must be a dict of dicts, got {type(each).__name__}")
        return ManifestSplittingConfig([(array, list(sizes.items())) for array, sizes in split_sizes.items()])

    def to_dict(self) -> dict[ManifestSplitCondition, dict[AnyDimCondition, int]]:
        """Return the rules as a dictionary of dictionaries.

        Returns:
            The argument of ``from_dict`` for this configuration.
        """
        return {array: dict(sizes) for array, sizes in self.split_sizes or ()}


def from_dict(split_sizes: SplitSizesDict) -> ManifestSplittingConfig:
    """Create a splitting configuration from a dictionary of dictionaries.

    Args:
        split_sizes: See ``ManifestSplittingConfig.from_dict``, which this function calls.

    Returns:
        The configuration.

    Examples:
        >>> rules = {ManifestSplitCondition.AnyArray(): {ManifestSplitDimCondition.Axis(0): 100}}
        >>> from_dict(rules) == ManifestSplittingConfig.from_dict(rules)
        True
    """
    return ManifestSplittingConfig.from_dict(split_sizes)


def to_dict(config: ManifestSplittingConfig) -> dict[ManifestSplitCondition, dict[AnyDimCondition, int]]:
    """Return the rules of a splitting configuration as a dictionary of dictionaries.

    Args:
        config: The configuration.

    Returns:
        The result of ``ManifestSplittingConfig.to_dict``, which this function calls.

    Raises:
        TypeError: If ``config`` is not a ``ManifestSplittingConfig``.

    Examples:
        >>> rules = {ManifestSplitCondition.AnyArray(): {ManifestSplitDimCondition.Axis(0): 100}}
        >>> to_dict(from_dict(rules)) == rules
        True
    """
    if not isinstance(config, ManifestSplittingConfig):
        raise TypeError(f"config must be a ManifestSplittingConfig, got {type(config).__name__}")
    return config.to_dict()


def split_sizes_for(
    splitting: ManifestSplittingConfig | None,
    path: str,
    dimension_names: Sequence[str | None] | None,
    num_chunks: Sequence[int],
) -> tuple[int, ...]:
    """Return how many chunks one manifest of an array contains, along each dimension."""
    rules = (splitting.split_sizes if splitting is not None else None) or ()
    sizes = [pair for array, dims in rules if array.holds(path) for pair in dims]
    names = dimension_names if dimension_names is not None else [None] * len(num_chunks)
    return tuple(
        next((size for condition, size in sizes if condition.holds(axis, name)), UNSPLIT)
        for axis, (name, _) in enumerate(zip(names, num_chunks, strict=True))
    )


@dataclass(slots=True, repr=False)
class ManifestVirtualChunkLocationCompressionConfig(Settings):
    """When and how to compress the locations of virtual chunks with a dictionary.

    Attributes:
        min_num_chunks: Manifests with at least this many virtual chunks are compressed. Default: 1000.
        dictionary_max_training_samples: How many locations to train the dictionary with. Default: 100.
        dictionary_max_size_bytes: The largest size of the dictionary. Default: 2048.
        compression_level: The level of zstd. Default: 3. Levels above 22 count as 22.
    """

    min_num_chunks: int | None = option(1000, unsigned(64))
    _: KW_ONLY
    dictionary_max_training_samples: int | None = option(100, unsigned(64))
    dictionary_max_size_bytes: int | None = option(2048, unsigned(64))
    compression_level: int | None = option(3)


#: Manifests split themselves by the number of references.
AUTO: Final[Literal["auto"]] = "auto"


def _splitting(name: str, value: Any) -> None:
    if isinstance(value, str):
        if value != AUTO:
            raise InvalidInputError(
                f'{name} must be "{AUTO}" or a ManifestSplittingConfig, got {value!r}',
                ErrorKind.INVALID_MANIFEST_SPLIT_INDEX,
            )
        return
    if value is not None and not isinstance(value, ManifestSplittingConfig):
        raise wrong_type(name, value, "ManifestSplittingConfig", "None")


#: One manifest for each array.
DEFAULT_SPLITTING: Final = ManifestSplittingConfig.from_dict(
    {ManifestSplitCondition.path_matches(".*"): {ManifestSplitDimCondition.Any(): UNSPLIT}}
)


@dataclass(slots=True, repr=False)
class ManifestConfig(Settings):
    """The configuration of manifests.

    Attributes:
        preload: Which manifests to load when a session opens.
        splitting: How many chunks one manifest contains. With ``"auto"``, manifests split themselves by the
            number of references. New repositories have ``"auto"``, unless their configuration has a value.
        virtual_chunk_location_compression: When and how to compress the locations of virtual chunks.
        max_concurrent_manifest_fetches_during_commit: How many manifests to fetch at once. Default: 1.
    """

    preload: ManifestPreloadConfig | None = option(ManifestPreloadConfig())
    splitting: ManifestSplittingConfig | Literal["auto"] | None = option(DEFAULT_SPLITTING, _splitting)
    virtual_chunk_location_compression: ManifestVirtualChunkLocationCompressionConfig | None = option(
        ManifestVirtualChunkLocationCompressionConfig()
    )
    max_concurrent_manifest_fetches_during_commit: int | None = option(1, unsigned(16))
