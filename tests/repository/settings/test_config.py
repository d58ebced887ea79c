"""Configuration: values, merging, conditions, effective values, and the shape in which it is saved."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixtures import fixture_folders
from tests.support.config_bytes import decode_config, encode_config
from tests.support.errors import of_kind
from tests.support.examples import examples

import frazil
from frazil.errors import FormatError, InvalidInputError
from frazil.format.flexbuffer import dumps
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
from frazil.repository.settings.config_document import from_document, to_document
from frazil.repository.settings.manifest_config import (
    DEFAULT_SPLITTING,
    UNSPLIT,
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplittingConfig,
    split_sizes_for,
)
from frazil.storage import (
    ObjectStoreConfig,
    S3Options,
    azure_store,
    gcs_store,
    http_store,
    local_filesystem_store,
    s3_store,
    storage_from_url,
)
from frazil.storage.foreign_objects import address_of
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


NULL = to_document(RepositoryConfig())


def nulls(names: str, **given: Any) -> dict[str, Any]:
    """A map with null for each of the names."""
    return dict.fromkeys(names.split()) | given


def s3(**given: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("allow_http", "anonymous", "force_path_style", "requester_pays"), False)
    options = nulls("checksum_algorithm endpoint_url region", network_stream_timeout_seconds=60)
    return flags | options | given


def stored(**stores: Any) -> dict[str, Any]:
    return {
        f"{tag}://x/": {
            "name": tag,
            "store": tag if store is None else {tag: store},
            "url_prefix": f"{tag}://x/",
        }
        for tag, store in stores.items()
    }


# As the reference writes it, with every variant of every enumeration.
FULL: dict[str, Any] = {
    **nulls("get_partial_values_concurrency max_concurrent_decodes max_concurrent_requests previous_file"),
    "caching": nulls(
        "num_bytes_attributes num_bytes_chunks num_transaction_changes",
        num_chunk_refs=7,
        num_snapshot_nodes=1,
    ),
    "compression": {"algorithm": "zstd", "level": 1},
    "inline_chunk_threshold_bytes": 12,
    "manifest": {
        "max_concurrent_manifest_fetches_during_commit": None,
        "preload": {
            "max_arrays_to_scan": None,
            "max_total_refs": 5,
            "preload_if": {
                "or": [
                    {"name_matches": {"regex": "a"}},
                    {"num_refs": {"from": {"Included": 1}, "to": {"Excluded": 2}}},
                    {"num_refs": {"from": "Unbounded", "to": {"Excluded": 2}}},
                    {"num_refs": {"from": {"Included": 1}, "to": "Unbounded"}},
                    "true",
                    "false",
                    {"and": [{"path_matches": {"regex": "p"}}]},
                ]
            },
        },
        "splitting": {
            "split_sizes": [
                [
                    "any_array",
                    [
                        {"condition": {"Axis": 0}, "num_chunks": 3},
                        {"condition": {"DimensionName": "x"}, "num_chunks": 4},
                        {"condition": "Any", "num_chunks": 9},
                    ],
                ],
                [
                    {"or": [{"path_matches": {"regex": "q"}}, {"and": [{"name_matches": {"regex": "r"}}]}]},
                    [{"condition": "Any", "num_chunks": 1}],
                ],
            ]
        },
        "virtual_chunk_location_compression": nulls(
            "dictionary_max_size_bytes dictionary_max_training_samples",
            compression_level=-5,
            min_num_chunks=10,
        ),
    },
    "num_updates_per_repo_info_file": 50,
    "repo_update_retries": {"default": nulls("initial_backoff_ms max_backoff_ms", max_tries=4)},
    "storage": nulls(
        "chunks_storage_class metadata_storage_class minimum_size_for_multipart_upload"
        " unsafe_use_conditional_create",
        concurrency={"ideal_concurrent_request_size": 4096, "max_concurrent_requests_for_object": 5},
        retries={"initial_backoff_ms": 0, "max_backoff_ms": 0, "max_tries": 1},
        storage_class="x",
        timeouts=nulls(
            "operation_attempt_timeout_ms operation_timeout_ms", connect_timeout_ms=1, read_timeout_ms=2
        ),
        unsafe_use_conditional_update=False,
        unsafe_use_metadata=False,
    ),
    "virtual_chunk_containers": stored(
        in_memory=None,
        local_file_system="/tmp/x",
        s3=s3(region="us-east-1", checksum_algorithm="crc64_nvme"),
        s3_compatible=s3(endpoint_url="http://x", checksum_algorithm="sha256"),
        tigris=s3(network_stream_timeout_seconds=None, checksum_algorithm="crc32c"),
        gcs={"a": "b"},
        azure={"account": "acc"},
        http={"headers": {"Auth": "x"}, "timeout": "3s"},
    ),
}


def test_a_full_document_round_trips() -> None:
    config = from_document(FULL)
    assert to_document(config) == FULL
    assert decode_config(encode_config(config)) == config


@pytest.mark.parametrize(
    "folder",
    [folder for folder in fixture_folders("v2-*/*") if (folder / "expected.json").exists()],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_documents_of_the_fixtures_round_trip(folder: Path) -> None:
    document = json.loads((folder / "expected.json").read_text())["repo_info_raw"]["config"]
    if document is None:
        pytest.skip("this repository has no configuration")
    assert to_document(from_document(document)) == document


def test_settings_of_frazil_have_a_key_of_their_own_if_they_are_set() -> None:
    assert "frazil" not in NULL
    config = RepositoryConfig(packing=PackingConfig(True, 7, 8), session_lifetime=timedelta(hours=2))
    config.chunks = ChunksConfig(True, False)
    document = to_document(config)
    assert document["frazil"] == {
        "packing": {"enabled": True, "pack_size_bytes": 8, "threshold_bytes": 7},
        "chunks": {"checksums": None, "compare": False, "deduplicate": True, "statistics": None},
        "fast_forward_timeout_seconds": None,
        "session_lifetime_seconds": 7200,
    }
    assert {key: value for key, value in document.items() if key != "frazil"} == NULL
    assert decode_config(encode_config(config)) == config


def test_unknown_keys_are_ignored_and_missing_ones_are_null() -> None:
    assert from_document({}) == RepositoryConfig()
    document = {"inline_chunk_threshold_bytes": 7, "later": {"x": 1}, "frazil": {"later": 1, "packing": None}}
    assert from_document(document) == RepositoryConfig(inline_chunk_threshold_bytes=7)


def test_other_ends_of_ranges_are_read() -> None:
    document = {"preload_if": {"num_refs": {"from": {"Excluded": 1}, "to": {"Included": 9}}}}
    config = from_document({"manifest": {"preload": document}})
    assert config.manifest == ManifestConfig(
        ManifestPreloadConfig(preload_if=ManifestPreloadCondition.num_refs(2, 10))
    )


@pytest.mark.parametrize(
    ("document", "where"),
    [
        (3, "expected a map"),
        ({"inline_chunk_threshold_bytes": "x"}, "inline_chunk_threshold_bytes"),
        ({"inline_chunk_threshold_bytes": 70000}, "inline_chunk_threshold_bytes"),
        ({"caching": 3}, "caching"),
        ({"compression": {"algorithm": "lz4"}}, "compression: algorithm"),
        ({"compression": {"algorithm": ["zstd"]}}, "compression: algorithm"),
        ({"manifest": {"preload": {"preload_if": "nope"}}}, "manifest: preload: preload_if"),
        ({"manifest": {"preload": {"preload_if": {"or": 3}}}}, "expected a list"),
        ({"manifest": {"preload": {"preload_if": {"name_matches": {}}}}}, "expected text"),
        ({"manifest": {"splitting": {"split_sizes": [["any_array"]]}}}, "split_sizes"),
        (
            {"manifest": {"splitting": {"split_sizes": [["any_array", [{"condition": "Any"}]]]}}},
            "split_sizes",
        ),
        ({"virtual_chunk_containers": {"s3://b/": {"url_prefix": "s3://b/"}}}, "s3://b/"),
        ({"virtual_chunk_containers": {"s3://b/": {"store": "s4", "url_prefix": "s3://b/"}}}, "store"),
        ({"storage": {"retries": {"max_tries": 0}}}, "storage: retries: .*max_tries"),
        ({"frazil": {"session_lifetime_seconds": "1"}}, "session_lifetime"),
        ({"frazil": {"session_lifetime_seconds": 10**8}}, "session_lifetime"),
        ({"frazil": 3}, "expected a map"),
    ],
)
def test_damage_is_named(document: Any, where: str) -> None:
    with pytest.raises(FormatError, match=where, check=of_kind("config-deserialization")):
        decode_config(dumps(document))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 70_000)
    | st.floats(-1, 1)
    | st.sampled_from(["Any", "true", "x"]),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["or", "regex", "Axis", "store"]), v),
    max_leaves=8,
)


@settings(max_examples=examples(300))
@given(st.data())
def test_any_value_anywhere_is_read_or_a_format_error(data: st.DataObject) -> None:
    document = json.loads(json.dumps(FULL))
    at: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        inner = at[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        at = inner
    at[key] = data.draw(json_values)
    try:
        config = from_document(document)
    except FormatError:
        return
    assert from_document(to_document(config)) == config


def test_the_splitting_by_the_number_of_references_is_saved_apart_from_rules() -> None:
    config = RepositoryConfig(manifest=ManifestConfig(splitting="auto"))
    document = to_document(config)
    assert (document["manifest"]["splitting"], document["frazil"]["splitting"]) == (None, "auto")
    assert from_document(document) == config
    del document["manifest"]
    assert from_document(document) == config
    rules = to_document(RepositoryConfig(manifest=ManifestConfig(splitting=DEFAULT_SPLITTING)))
    rules["frazil"] = {"splitting": "auto"}
    read = from_document(rules)
    assert read.manifest is not None
    assert read.manifest.splitting == DEFAULT_SPLITTING
    with pytest.raises(FormatError, match=r"frazil.splitting: expected 'auto' or null, got 'other'"):
        from_document({"frazil": {"splitting": "other"}})


def test_the_splitting_is_auto_or_rules() -> None:
    with pytest.raises(InvalidInputError, match='must be "auto" or a ManifestSplittingConfig'):
        ManifestConfig(splitting="other")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ManifestConfig(splitting=3)  # type: ignore[arg-type]


SECRET = "do-not-tell"


def config_with(prefix: str, store: Any) -> frazil.RepositoryConfig:
    config = frazil.RepositoryConfig()
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, store))
    return config


SECRETS: dict[str, tuple[str, Any, str]] = {
    "gcs bearer": ("gs://b/", gcs_store({"bearer_token": SECRET}), "`bearer_token`"),
    "gcs key": ("gs://b/", gcs_store({"GOOGLE_SERVICE_ACCOUNT_KEY": SECRET}), "SERVICE_ACCOUNT_KEY"),
    "azure key": ("az://c/", azure_store(account="a", config={"access_key": SECRET}), "`access_key`"),
    "azure sas": ("az://c/", azure_store(account="a", config={"azure_storage_sas_token": SECRET}), "sas"),
    "azure client": ("az://c/", azure_store(account="a", config={"client_secret": SECRET}), "client_secret"),
    "unknown": ("az://c/", azure_store(account="a", config={"tomorrows": SECRET}), "`tomorrows`"),
    "http option": ("https://h/", http_store({"tomorrows": SECRET}), "`tomorrows`"),
    "authorization": ("https://h/", http_store(None, {"Authorization": f"Bearer {SECRET}"}), "Authorization"),
    "api key": ("https://h/", http_store(None, {"X-Api-Key": SECRET, "Accept": "*/*"}), "`X-Api-Key`"),
    "cookie": ("https://h/", http_store(None, {"cookie": SECRET}), "`cookie`"),
    "proxy": ("gs://b/", gcs_store({"proxy_url": f"http://me:{SECRET}@proxy:1"}), "`proxy_url`"),
    "gcs endpoint": ("gs://b/", gcs_store({"base_url": f"http://h/?sig={SECRET}"}), "`base_url`"),
    "s3 endpoint": ("s3://b/", s3_store(endpoint_url=f"https://me:{SECRET}@h"), "`endpoint_url`"),
    "tigris endpoint": (
        "tigris://b/",
        ObjectStoreConfig.Tigris(S3Options(endpoint_url=f"https://h/?token={SECRET}")),
        "`endpoint_url`",
    ),
    "proxy without a scheme": ("gs://b/", gcs_store({"proxy_url": f"me:{SECRET}@proxy:1"}), "`proxy_url`"),
    "one slash": ("gs://b/", gcs_store({"base_url": f"https:/me:{SECRET}@h"}), "`base_url`"),
    "space": ("s3://b/", s3_store(endpoint_url=f" https://me:{SECRET}@h"), "`endpoint_url`"),
    "line break": ("s3://b/", s3_store(endpoint_url=f"ht\ntp://me:{SECRET}@h"), "`endpoint_url`"),
    "query without a name": ("s3://b/", s3_store(endpoint_url=f"https://h/?{SECRET}"), "`endpoint_url`"),
    "prefix": (f"https://me:{SECRET}@h/", http_store(), "the user name in the URL"),
}


@pytest.mark.parametrize("case", SECRETS.values(), ids=SECRETS.keys())
def test_secrets_are_saved_only_on_request(case: tuple[str, Any, str]) -> None:
    prefix, store, word = case
    config = config_with(prefix, store)
    create, open_or_create = frazil.Repository.create, frazil.Repository.open_or_create
    for make in (create, open_or_create):
        storage = frazil.in_memory_storage()
        with pytest.raises(frazil.InvalidInputError) as error:
            make(storage, config)
        assert error.value.kind == "secret-in-config"
        assert word in str(error.value)
        assert "store_secrets=True" in str(error.value)
        assert SECRET not in str(error.value)
        assert list(storage.list("")) == []
    create(storage)
    mine = frazil.Repository.open(storage, config)
    with pytest.raises(frazil.InvalidInputError, check=of_kind("secret-in-config")):
        mine.save_config()
    assert SECRET.encode() not in b"".join(bytes(storage.get(each.key)) for each in storage.list(""))
    mine.save_config(store_secrets=True)
    saved = frazil.Repository.open(storage)
    assert saved.config.get_virtual_chunk_container(prefix) == config.get_virtual_chunk_container(prefix)
    saved.save_config()  # what is there already is no new secret
    for make in (create, open_or_create):
        repo_with_secrets = make(frazil.in_memory_storage(), config, store_secrets=True)
        assert frazil.Repository.open(repo_with_secrets.storage).config.virtual_chunk_containers


@pytest.mark.parametrize("case", SECRETS.values(), ids=SECRETS.keys())
def test_secrets_are_not_printed(case: tuple[str, Any, str]) -> None:
    prefix, store, _ = case
    config = config_with(prefix, store)
    repo = frazil.Repository.open(frazil.Repository.create(frazil.in_memory_storage()).storage, config)
    container = config.get_virtual_chunk_container(prefix)
    assert container is not None
    values: list[Any] = [store, container, config, repo, repo.config]
    for value in values:
        for text in (repr(value), str(value), value._repr_html_()):
            assert SECRET not in text
        assert SECRET not in f"{value!r:s} {value}"


@pytest.mark.parametrize("version", [1, 2])
def test_secrets_of_another_repository_or_container_are_new(version: int) -> None:
    """A container that some repository had saved is no reason to save its secrets elsewhere, or others."""
    prefix = "https://h/"
    config = config_with(prefix, http_store(None, {"Authorization": SECRET}))
    storage = frazil.in_memory_storage()
    frazil.Repository.create(storage, config, spec_version=version, store_secrets=True)
    fetched = frazil.Repository.fetch_config(storage)
    assert fetched is not None
    empty = frazil.in_memory_storage()
    with pytest.raises(frazil.InvalidInputError, match="Authorization"):
        frazil.Repository.create(empty, fetched, spec_version=version)
    assert list(empty.list("")) == []
    frazil.Repository.create(empty, spec_version=version)
    with pytest.raises(frazil.InvalidInputError, match="Authorization"):
        frazil.Repository.open(empty, fetched).save_config()
    frazil.Repository.open(storage, fetched).save_config()
    frazil.Repository.open(storage, config).save_config()  # the same, made by hand
    saved = fetched.get_virtual_chunk_container(prefix)
    assert saved is not None
    saved.store = http_store(None, {"Authorization": f"another {SECRET}"})
    with pytest.raises(frazil.InvalidInputError, match="Authorization"):
        frazil.Repository.open(storage, fetched).save_config()


def test_what_is_no_secret_is_saved_and_shown() -> None:
    cases = {
        "gs://b/": gcs_store({"base_url": "http://127.0.0.1:9", "allow_http": "true", "timeout": "3s"}),
        "gs://c/": gcs_store({"user_agent": "survey (me@example.org)", "proxy_url": "proxy:3128"}),
        "file:///a@b/": local_filesystem_store("/a@b/"),
        "az://c/": azure_store(account="mine", config={"endpoint": "http://127.0.0.1:9"}),
        "s3://b/": s3_store(endpoint_url="http://127.0.0.1:9/path", region="eu-west-1"),
        "https://h/": http_store({"timeout": "3s"}, {"Accept": "text/plain"}),
    }
    for prefix, store in cases.items():
        repo = frazil.Repository.create(frazil.in_memory_storage(), config_with(prefix, store))
        assert "****" not in repr(repo.config)


def _in_options(path: str) -> Any:
    pytest.importorskip("pyspark")
    return import_module("frazil.spark.tables.options").storage_at({"path": path})


@pytest.mark.parametrize("storage_of", [storage_from_url, _in_options])
def test_errors_about_places_print_no_secrets(storage_of: Callable[[str], Any]) -> None:
    with pytest.raises(frazil.InvalidInputError) as error:
        storage_of(f"ftp://me:{SECRET}@h/x")
    assert SECRET not in str(error.value)


def test_the_address_of_a_storage_has_no_secrets() -> None:
    azure = frazil.azure_storage(
        account="a", container="c", prefix="p", config={"sas_key": SECRET, "timeout": "3s"}, anonymous=True
    )
    for storage in (
        azure,
        frazil.gcs_storage(bucket="b", prefix="p", config={"bearer_token": SECRET, "timeout": "3s"}),
        frazil.http_storage("http://h/p", {"tomorrows": SECRET, "timeout": "3s"}),
    ):
        address = address_of(storage, "chunks")
        assert address is not None
        assert SECRET not in str(address[1]._0)
        assert address[1]._0["timeout"] == "3s"


@pytest.mark.parametrize(
    "url", [f"https://me:{SECRET}@h/data", f"https://h/data?sig={SECRET}&x=1", f" https://me:{SECRET}@h/data"]
)
def test_storages_print_no_secrets_of_their_address(url: str) -> None:
    for storage in (frazil.http_storage(url), frazil.redirect_storage(url)):
        assert SECRET not in repr(storage) + str(storage) + repr(getattr(storage, "bucket", ""))
    s3 = frazil.s3_storage(bucket="b", prefix="p", endpoint_url=url, anonymous=True)
    assert SECRET not in repr(s3) + repr(getattr(s3, "bucket", ""))
