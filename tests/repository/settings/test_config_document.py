"""The persisted configuration: the reference's shape, both ways, and clear errors for damage."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixtures import fixture_folders
from tests.support.config_bytes import decode_config, encode_config
from tests.support.examples import examples

from frazil.errors import FormatError, InvalidInputError
from frazil.format.flexbuffer import dumps
from frazil.repository.settings.conditions import ManifestPreloadCondition
from frazil.repository.settings.config import ChunksConfig, PackingConfig, RepositoryConfig
from frazil.repository.settings.config_document import from_document, to_document
from frazil.repository.settings.manifest_config import (
    DEFAULT_SPLITTING,
    ManifestConfig,
    ManifestPreloadConfig,
)

NULL = to_document(RepositoryConfig())


def s3(**given: Any) -> dict[str, Any]:
    options = {
        "allow_http": False,
        "anonymous": False,
        "checksum_algorithm": None,
        "endpoint_url": None,
        "force_path_style": False,
        "network_stream_timeout_seconds": 60,
        "region": None,
        "requester_pays": False,
    }
    return options | given


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
    "caching": {
        "num_bytes_attributes": None,
        "num_bytes_chunks": None,
        "num_chunk_refs": 7,
        "num_snapshot_nodes": 1,
        "num_transaction_changes": None,
    },
    "compression": {"algorithm": "zstd", "level": 1},
    "get_partial_values_concurrency": None,
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
        "virtual_chunk_location_compression": {
            "compression_level": -5,
            "dictionary_max_size_bytes": None,
            "dictionary_max_training_samples": None,
            "min_num_chunks": 10,
        },
    },
    "max_concurrent_decodes": None,
    "max_concurrent_requests": None,
    "num_updates_per_repo_info_file": 50,
    "previous_file": None,
    "repo_update_retries": {"default": {"initial_backoff_ms": None, "max_backoff_ms": None, "max_tries": 4}},
    "storage": {
        "chunks_storage_class": None,
        "concurrency": {"ideal_concurrent_request_size": 4096, "max_concurrent_requests_for_object": 5},
        "metadata_storage_class": None,
        "minimum_size_for_multipart_upload": None,
        "retries": {"initial_backoff_ms": 0, "max_backoff_ms": 0, "max_tries": 1},
        "storage_class": "x",
        "timeouts": {
            "connect_timeout_ms": 1,
            "operation_attempt_timeout_ms": None,
            "operation_timeout_ms": None,
            "read_timeout_ms": 2,
        },
        "unsafe_use_conditional_create": None,
        "unsafe_use_conditional_update": False,
        "unsafe_use_metadata": False,
    },
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
    with pytest.raises(FormatError, match=where) as error:
        decode_config(dumps(document))
    assert error.value.kind == "config-deserialization"


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
