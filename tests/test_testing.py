"""The shipped tools for tests, used as their users would."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import frazil
from frazil.testing import LatencyStorage, invariants, strategies, trees, utils
from frazil.testing.models import ArrayNode, GroupNode, ModelStore

FEW = settings(max_examples=examples(15))


def test_latency_can_be_changed_and_is_of_a_remote_storage() -> None:
    storage = LatencyStorage(frazil.in_memory_storage())
    repo = frazil.Repository.create(storage)
    storage.write_latency_ms, storage.read_latency_ms = 30, 20
    for call, least in ((lambda: repo.lookup_branch("main"), 0.02), (lambda: storage.put("x", b""), 0.03)):
        started = time.perf_counter()
        call()
        assert time.perf_counter() - started >= least
    storage.write_latency_ms = storage.read_latency_ms = 0
    with repo.transaction("main", message="m") as store:
        zarr.create_array(store, name="a", shape=(4,), chunks=(1,), dtype="i4")[:] = 3
    assert not storage.is_local
    assert frazil.read(repo.readonly_session("main"), "a").tolist() == [3] * 4


@FEW
@given(sample=trees.tree_and_mixed_moves())
def test_moves_of_a_model_and_of_a_session_agree(sample: Any) -> None:
    tree, moves = sample
    model, session, repo = utils.tree_to_model_and_icechunk(tree)
    session.commit("tree")
    arrays, groups = set(tree.arrays()), set(tree.groups())
    moving = repo.rearrange_session("main")
    for source, target, refused in moves:
        if refused is not None:
            with pytest.raises(frazil.IcechunkError) as raised:
                moving.move(trees.absolute(source), trees.absolute(target))
            assert raised.value.kind == refused
            continue
        moving.move(trees.absolute(source), trees.absolute(target))
        asyncio.run(model.move(trees.absolute(source), trees.absolute(target)))
        arrays, groups = utils.update_paths_after_move(source, target, arrays, groups)
    read = GroupNode.from_store(moving.store)
    assert (set(read.arrays()), set(read.groups())) == (arrays, groups)
    asyncio.run(invariants.compare_list_dir(model, moving.store, ["", *groups]))
    invariants.assert_moves_sorted_by_final_path(moving.status().moved_nodes)


@FEW
@given(tree=trees.trees(max_leaves=st.integers(1, 8)))
def test_a_hierarchy_is_the_same_in_every_phase(tree: Any) -> None:
    model, session, repo = utils.tree_to_model_and_icechunk(tree)
    for _, store in utils.precommit_postcommit_readonly(session, repo):
        assert sorted(GroupNode.from_store(store).nodes()) == sorted(tree.nodes())
        asyncio.run(invariants.compare_list_dir(model, store, tree.groups(include_root=True)))
    invariants.assert_ancestry_invariants(list(repo.ancestry(branch="main")), {repo.lookup_branch("main")})


def test_histories_that_are_wrong_are_noticed() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    repo.writable_session("main").commit("m", allow_empty=True)
    history = list(repo.ancestry(branch="main"))
    for wrong in ([], history[::-1], history * 2, history[:1]):
        with pytest.raises(AssertionError):
            invariants.assert_ancestry_invariants(wrong)
    with pytest.raises(AssertionError, match="unknown"):
        invariants.assert_ancestry_invariants(history, set())
    with pytest.raises(AssertionError):
        invariants.assert_moves_sorted_by_final_path([("x", "/a-b"), ("y", "/a/b")])


@FEW
@given(data=st.data(), config=strategies.repository_configs(inline_chunk_threshold_bytes=st.integers(0, 9)))
def test_strategies(data: Any, config: frazil.RepositoryConfig | None) -> None:
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage, config)
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(6, 4), chunks=(2, 2), dtype="i4", fill_value=0)
    where = data.draw(strategies.chunk_slicers((3, 2), (2, 2)))
    array[where] = 1
    assert np.asarray(array[:]).sum() == 4
    path = data.draw(strategies.chunk_paths((3, 2)))
    assert len(path.split("/")) == 2
    splitting = data.draw(strategies.splitting_configs(arrays=[array]))
    split = repo.reopen(frazil.RepositoryConfig(manifest=frazil.ManifestConfig(splitting=splitting)))
    session.commit("one")
    older = strategies.draw_older_than
    assert older(data, storage, split).tzinfo is not None


def test_models_can_be_shifted_and_copied() -> None:
    store = ModelStore()
    GroupNode({"a": ArrayNode((3,), np.dtype("i4"))}).materialize(store)
    array = zarr.create_array(store, name="b", shape=(3,), chunks=(1,), dtype="i4", fill_value=0)
    array[:] = [1, 2, 3]
    before = asyncio.run(store.copy())
    asyncio.run(store.shift_array("/b", (1,), (3,)))
    assert np.asarray(array[:]).tolist() == [0, 1, 2]
    assert np.asarray(zarr.open_group(before)["b"][:]).tolist() == [1, 2, 3]  # type: ignore[index]
    assert GroupNode.from_paths({"g/x"}, {"g", "h"}).nodes() == ["g", "g/x", "h"]
