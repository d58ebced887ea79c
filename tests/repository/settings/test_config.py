"""Configuration: optional fields, merging, conditions, splitting, preloading, effective values."""

from __future__ import annotations

import pickle
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from frazil.errors import InvalidInputError
from frazil.repository.attribution import Attribution
from frazil.repository.settings.conditions import (
    ManifestPreloadCondition,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
)
from frazil.repository.settings.config import (
    ChunksConfig,
    CompressionConfig,
    PackingConfig,
    RepositoryConfig,
    RepoUpdateRetryConfig,
    ResolvedConfig,
    VirtualChunkContainer,
    VirtualChunkSpec,
    opened_with,
)
from frazil.repository.settings.manifest_config import (
    UNSPLIT,
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    split_sizes_for,
)
from frazil.storage.object_store_config import (
    s3_store,
)
from frazil.storage.settings import StorageRetriesSettings, StorageSettings

Split = ManifestSplitCondition
Dim = ManifestSplitDimCondition
Preload = ManifestPreloadCondition


def container(prefix: str, region: str = "r") -> VirtualChunkContainer:
    return VirtualChunkContainer(prefix, s3_store(region=region))


# ------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "wrong",
    [
        {"inline_chunk_threshold_bytes": 65536},
        {"inline_chunk_threshold_bytes": -1},
        {"num_updates_per_repo_info_file": 65536},
        {"session_lifetime": timedelta(days=8)},
        {"session_lifetime": timedelta(0)},
        {"fast_forward_timeout": timedelta(seconds=-1)},
        {"fast_forward_timeout": timedelta(days=8)},
    ],
)
def test_wrong_numbers(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        RepositoryConfig(**wrong)


def test_wrong_types() -> None:
    with pytest.raises(TypeError, match="compression must be CompressionConfig"):
        RepositoryConfig(compression=3)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError, match="virtual_chunk_containers"):
        RepositoryConfig(virtual_chunk_containers={"a": 3})  # type: ignore[dict-item]  # what is tested


# ---------------------------------------------------------------------------------------- containers


def test_containers_of_a_config() -> None:
    config = RepositoryConfig()
    assert config.get_virtual_chunk_container("s3://b/") is None
    config.set_virtual_chunk_container(container("s3://b/", "one"))
    config.set_virtual_chunk_container(container("s3://b/", "two"))
    assert config.get_virtual_chunk_container("s3://b/") == container("s3://b/", "two")
    config.clear_virtual_chunk_containers()
    assert config.virtual_chunk_containers == {}


def test_virtual_chunk_spec() -> None:
    spec = VirtualChunkSpec([1, 2], "s3://b/k", 3, 4, None, datetime(2026, 1, 1, tzinfo=UTC))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec.index == [1, 2]
    with pytest.raises(InvalidInputError, match="offset"):
        VirtualChunkSpec([1], "s3://b/k", -3, 4)
    with pytest.raises(InvalidInputError, match="index"):
        VirtualChunkSpec([-1], "s3://b/k", 3, 4)
    with pytest.raises(TypeError, match="time zone"):
        VirtualChunkSpec([1], "s3://b/k", 3, 4, None, datetime(2026, 1, 1))
    with pytest.raises(AttributeError):
        spec.offset = 3  # type: ignore[misc]  # what is tested


# ------------------------------------------------------------------------------------------- merging

RULES = ManifestSplittingConfig.from_dict({Split.AnyArray(): {Dim.Any(): 1}})


def test_merge_keeps_containers_of_both_but_opening_replaces_them() -> None:
    a, a2, b = container("s3://a/"), container("s3://a/", "other"), container("s3://b/")
    persisted = RepositoryConfig(virtual_chunk_containers={"s3://a/": a, "s3://b/": b})
    user = RepositoryConfig(virtual_chunk_containers={"s3://a/": a2})
    assert persisted.merge(user).virtual_chunk_containers == {"s3://a/": a2, "s3://b/": b}
    assert opened_with(user, persisted, StorageSettings()).virtual_chunk_containers == {"s3://a/": a2}
    assert opened_with(None, persisted, StorageSettings()) == RepositoryConfig(
        virtual_chunk_containers={"s3://a/": a, "s3://b/": b}, storage=StorageSettings()
    )


def test_opening_user_over_persisted_over_storage() -> None:
    config = opened_with(
        RepositoryConfig(
            inline_chunk_threshold_bytes=1,
            storage=StorageSettings(retries=StorageRetriesSettings(max_backoff_ms=1)),
        ),
        RepositoryConfig(
            inline_chunk_threshold_bytes=2,
            max_concurrent_requests=3,
            storage=StorageSettings(storage_class="cold"),
        ),
        StorageSettings(retries=StorageRetriesSettings(1, 0, 0), storage_class="warm"),
    )
    assert config.inline_chunk_threshold_bytes == 1
    assert config.max_concurrent_requests == 3
    assert config.storage == StorageSettings(retries=StorageRetriesSettings(1, 0, 1), storage_class="cold")


# ---------------------------------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("condition", "path", "refs", "expected"),
    [
        (Preload.true(), "/a", 1, True),
        (Preload.false(), "/a", 1, False),
        (Preload.path_matches("^/g/"), "/g/a", 1, True),
        (Preload.name_matches("g"), "/g/a", 1, False),
        (Preload.name_matches("^a$"), "/g/a", 1, True),
        (Preload.name_matches("("), "/g/a", 1, False),
        (Preload.num_refs(2, 5), "/a", 1, False),
        (Preload.num_refs(2, 5), "/a", 2, True),
        (Preload.num_refs(2, 5), "/a", 5, False),
        (Preload.num_refs(None, None), "/a", 5, True),
        (Preload.or_conditions([]), "/a", 1, False),
        (Preload.and_conditions([]), "/a", 1, True),
        (Preload.true() & Preload.false(), "/a", 1, False),
        (Preload.true() | Preload.false(), "/a", 1, True),
    ],
)
def test_preload_conditions(condition: Preload, path: str, refs: int, expected: bool) -> None:
    assert condition.holds(path, refs) is expected


NAMES = ["time", "y", "x"]


@pytest.mark.parametrize(
    ("rules", "names", "expected"),
    [
        ({}, NAMES, (UNSPLIT, UNSPLIT, UNSPLIT)),
        ({Split.AnyArray(): {Dim.Any(): 4}}, NAMES, (4, 4, 4)),
        ({Split.name_matches("other"): {Dim.Any(): 4}}, NAMES, (UNSPLIT,) * 3),
        # In a rule the first condition of a dimension wins, whatever comes after.
        ({Split.AnyArray(): {Dim.Axis(0): 2, Dim.DimensionName("time"): 3, Dim.Any(): 8}}, NAMES, (2, 8, 8)),
        ({Split.AnyArray(): {Dim.Any(): 8, Dim.Axis(0): 2}}, NAMES, (8, 8, 8)),
        # Dimensions that the first rule does not name are left to the next.
        (
            {Split.name_matches("^a$"): {Dim.DimensionName("time"): 3}, Split.AnyArray(): {Dim.Any(): 4}},
            NAMES,
            (3, 4, 4),
        ),
        ({Split.AnyArray(): {Dim.DimensionName("im"): 4}}, NAMES, (4, UNSPLIT, UNSPLIT)),
        ({Split.AnyArray(): {Dim.DimensionName(".*"): 4}}, None, (UNSPLIT,) * 3),
        ({Split.AnyArray(): {Dim.DimensionName(".*"): 4}}, [None, "y", None], (UNSPLIT, 4, UNSPLIT)),
        ({Split.path_matches("("): {Dim.Any(): 4}}, NAMES, (UNSPLIT,) * 3),
        ({Split.or_conditions([]): {Dim.Any(): 4}}, NAMES, (UNSPLIT,) * 3),
        ({Split.and_conditions([]): {Dim.Any(): 4}}, NAMES, (4, 4, 4)),
    ],
)
def test_split_sizes(rules: Any, names: list[str | None] | None, expected: tuple[int, ...]) -> None:
    splitting = ManifestSplittingConfig.from_dict(rules)
    assert split_sizes_for(splitting, "/g/a", names, [10, 10, 10]) == expected
    assert splitting.to_dict() == rules
    assert ManifestSplittingConfig(splitting.split_sizes) == splitting


def test_split_sizes_are_checked() -> None:
    with pytest.raises(InvalidInputError, match="got 0"):
        ManifestSplittingConfig.from_dict({Split.AnyArray(): {Dim.Any(): 0}})
    with pytest.raises(TypeError, match="ManifestSplitCondition"):
        ManifestSplittingConfig([("any", [(Dim.Any(), 1)])])  # type: ignore[list-item]  # what is tested
    with pytest.raises(TypeError, match="ManifestSplitDimCondition"):
        ManifestSplittingConfig([(Split.AnyArray(), [("Any", 1)])])  # type: ignore[list-item]  # what is tested


# ----------------------------------------------------------------------------------------- effective


@pytest.mark.parametrize("name", [field.name for field in fields(ResolvedConfig)])
def test_the_printed_defaults_hold(name: str) -> None:
    printed = re.search(rf"^{name}: (.*) \(default\)$", str(RepositoryConfig()), re.MULTILINE)
    assert printed is not None or name not in ("max_concurrent_requests", "session_lifetime")
    if printed is not None:
        value = getattr(ResolvedConfig.of(RepositoryConfig()), name)
        assert printed[1] == ("all" if value is None else str(value))


def test_every_default() -> None:
    e = ResolvedConfig.of(RepositoryConfig())
    assert (e.inline_chunk_threshold_bytes, e.num_updates_per_repo_info_file) == (512, 1000)
    assert (e.compression_level, e.repo_update_retries) == (3, (100, 50, 30_000))
    assert (e.packing, e.pack_threshold_bytes, e.pack_size_bytes) == (True, 1 << 20, 16 << 20)
    assert (e.session_lifetime, e.fast_forward_timeout) == (timedelta(hours=24), timedelta(0))
    assert (e.deduplicate, e.compare_chunks) == (False, True)
    assert (e.locations.min_num_chunks, e.locations.max_dictionary_bytes) == (1000, 2048)
    assert split_sizes_for(e.splitting, "/a", None, [5]) == (UNSPLIT,)
    cases = (("/g/time", 1000), ("/g/time", 1001), ("/g/temperature", 10))
    assert [e.preloads(*case) for case in cases] == [True, False, False]


def test_given_values_hold() -> None:
    e = ResolvedConfig.of(
        RepositoryConfig(
            inline_chunk_threshold_bytes=0,
            get_partial_values_concurrency=0,
            max_concurrent_requests=0,
            compression=CompressionConfig(level=9),
            manifest=ManifestConfig(ManifestPreloadConfig(5, Preload.true()), RULES),
            repo_update_retries=RepoUpdateRetryConfig(StorageRetriesSettings(4)),
            packing=PackingConfig(enabled=False, threshold_bytes=1),
            session_lifetime=timedelta(days=2),
            chunks=ChunksConfig(True, False),
            fast_forward_timeout=timedelta(seconds=3),
        )
    )
    assert (e.inline_chunk_threshold_bytes, e.compression_level) == (0, 9)
    assert (e.get_partial_values_concurrency, e.max_concurrent_requests) == (1, 1)
    assert split_sizes_for(e.splitting, "/a", None, [5]) == (1,)
    assert [e.preloads("/anything", number) for number in (5, 6)] == [True, False]
    assert e.repo_update_retries[0] == 4
    assert (e.packing, e.pack_threshold_bytes, e.pack_size_bytes) == (False, 1, 16 << 20)
    assert (e.deduplicate, e.compare_chunks) == (True, False)
    assert (e.session_lifetime, e.fast_forward_timeout) == (timedelta(days=2), timedelta(seconds=3))


# --------------------------------------------------------------------------------------- attribution


@pytest.mark.parametrize(
    "wrong",
    [
        *({"client": text} for text in ("", "a b", "a/b/c", "a/", "/a", "é", "a(b)", "x" * 129)),
        *({"workload": text} for text in ("é", "a\nb", 'a"b', "a;b", "(a)", "x" * 129)),
        {"principal": "a=b"},
    ],
)
def test_wrong_attributions(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"attribution `{next(iter(wrong))}`"):
        Attribution(**wrong)
