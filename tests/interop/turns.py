"""Frazil and the published icechunk take turns on one repository, beside a small model of it.

Hypothesis decides who does what next: sessions of either side write, commit, collide, are forked and thrown
away; branches and tags come and go; garbage is collected; files of statistics are damaged. After every commit
both sides read everything and have to agree with each other and with the model, which is a dictionary of
numpy arrays.

``test_turns`` has what makes versions in other ways, and runs it all.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.expected import array_at, diff_text
from tests.interop.both import (
    ROOT,
    Side,
    check_same,
    check_same_files,
    check_same_snapshot,
    diff_of,
    sides,
    splitting,
    state_of,
)
from zarr.core.sync import sync

import frazil

GROUPS = ("g", "g-b", "g/é", "π")
ARRAYS = ("a", "a0", "g/a", "g/é/b", "g-b/a", "t")
DATA = bytes(range(200))
VIRTUAL = "v"
EDITS = (*["write"] * 4, "group", "array", "no_chunk", "no_node", "resize", "attribute", "virtual")

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyzé"), inner, max_size=2),
    max_leaves=5,
)
metadata = st.dictionaries(st.sampled_from(["author", "n", "é", "z"]), json_values, max_size=3)
who = st.booleans()
number, flag = st.integers(0, 19), st.booleans()
shapes = st.tuples(st.integers(1, 7), st.integers(1, 5)) | st.tuples(st.integers(0, 9)) | st.just(())
Draw = Callable[[Any], Any]


@dataclass(frozen=True)
class Array:
    values: Any  # numpy
    chunks: tuple[int, ...]
    attributes: dict[str, Any]


Tree = dict[str, "Array | dict[str, Any]"]  # groups are their attributes


@dataclass(frozen=True)
class Version:
    parent: str | None
    tree: Tree
    message: str
    metadata: dict[str, Any]
    has_moves: bool = False


@dataclass
class Work:
    """A writable session that is open, and what it should see."""

    session: Any
    branch: str
    base: str
    tree: Tree
    is_dirty: bool = False


@dataclass
class Model:
    versions: dict[str, Version] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    deleted_tags: set[str] = field(default_factory=set)
    ops: list[str] = field(default_factory=list)  # oldest first
    metadata: dict[str, Any] = field(default_factory=dict)

    def chain(self, id_: str | None) -> list[str]:
        out = []
        while id_ is not None:
            out.append(id_)
            id_ = self.versions[id_].parent
        return out

    def reachable(self) -> set[str]:
        return {id_ for tip in {*self.branches.values(), *self.tags.values()} for id_ in self.chain(tip)}


def small(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[int, ...]:
    """A shape whose shrinking leaves no part of a chunk behind: zarr would show that again later."""
    return tuple(-(-size // chunk) * chunk for size, chunk in zip(shape, chunks, strict=True))


def check_answers(array: frazil.Array, values: Any) -> None:
    """Statistics of chunks, whoever wrote or damaged them, give what numpy gives."""
    reduction = frazil.reduce(array)
    assert reduction.count == values.size
    if values.size:
        assert (reduction.min, reduction.max) == (values.min(), values.max())
        assert abs(reduction.sum - values.sum(dtype=np.float64)) <= reduction.error + 1e-12
        bound = values.reshape(-1)[0].item()
        assert np.array_equal(frazil.where(array, f"> {bound!r}").points(), np.argwhere(values > bound))


class Turns(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="frazil-turns-"))
        virtual = self.folder / "files"
        virtual.mkdir()
        (virtual / "data.bin").write_bytes(DATA)
        self.ours, self.theirs = sides(self.folder / "repo", virtual)
        self.model = Model()
        self.work: Work  # since `start`
        self.number = 0
        self.quiet = 0  # checks since garbage was collected
        self.spec = 2
        self.stack = ExitStack()

    def teardown(self) -> None:
        try:
            if self.model.versions:
                self.check_all()
        finally:
            self.stack.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def side(self, is_ours: bool) -> Side:
        return self.ours if is_ours else self.theirs

    @initialize(is_ours=who, split=st.booleans(), old=st.booleans(), bulk=st.booleans())
    def start(self, is_ours: bool, split: bool, old: bool, bulk: bool) -> None:
        """One of them creates the repository. ``bulk``: zarr reads and writes Frazil's chunks in bulk."""
        if not bulk:
            self.stack.enter_context(
                zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"})
            )
        first, second = (self.ours, self.theirs) if is_ours else (self.theirs, self.ours)
        more = {"manifest": splitting(first.package, 2)} if split else {}
        config = first.config(inline_chunk_threshold_bytes=12, num_updates_per_repo_info_file=5, **more)
        self.spec = first.spec = second.spec = 1 if old else 2
        if is_ours:
            config.chunks = frazil.ChunksConfig(statistics=True)
        first.create(config)
        second.open()
        initial = {"__icechunk": {"is_root": True}}
        self.model.versions[ROOT] = Version(None, {}, "Repository initialized", initial)
        self.model.branches["main"] = ROOT
        self.model.ops.append("RepoInitialized")
        self.check_state()
        self.begin(not is_ours, "main")

    # Sessions

    @rule(is_ours=who, pick=st.integers(0, 9))
    def open_session(self, is_ours: bool, pick: int) -> None:
        """A new session; one that is open is left behind, uncommitted."""
        self.begin(is_ours, self.pick(sorted(self.model.branches), pick))

    def begin(self, is_ours: bool, branch: str) -> None:
        tip = self.model.branches[branch]
        session = self.side(is_ours).repo.writable_session(branch)
        assert session.snapshot_id == tip
        self.work = Work(session, branch, tip, dict(self.model.versions[tip].tree))

    def next_turn(self) -> None:
        """The other side goes on, on the same branch if it is still there."""
        work = self.work
        branch = work.branch if work.branch in self.model.branches else "main"
        self.begin(not isinstance(work.session, frazil.Session), branch)

    @property
    def idle(self) -> bool:
        return not self.work.session.has_uncommitted_changes

    @staticmethod
    def pick(names: list[str], number: int) -> str:
        return names[number % len(names)]

    @property
    def root(self) -> Any:
        return zarr.open_group(self.work.session.store, mode="a")

    def changed(self) -> None:
        self.work.is_dirty = True

    def make_parents(self, path: str) -> bool:
        """The groups above ``path`` in the model; False if an array is in the way."""
        tree, parts = self.work.tree, path.split("/")
        above = ["", *("/".join(parts[:n]) for n in range(1, len(parts)))]
        if any(isinstance(tree.get(parent), Array) for parent in above):
            return False
        for parent in above:
            tree.setdefault(parent, {})
        return True

    # Edits, which draw what they need

    def edit_group(self, draw: Draw) -> None:
        path, n = draw(st.sampled_from(GROUPS)), draw(number)
        if path in self.work.tree or not self.make_parents(path):
            return
        self.root.create_group(path, attributes={"n": n})
        self.work.tree[path] = {"n": n}
        self.changed()

    def edit_array(self, draw: Draw) -> None:
        """A new array, or one in the place of another: the same path, another node."""
        path, dtype = draw(st.sampled_from(ARRAYS)), draw(st.sampled_from(["i4", "f8", "u1"]))
        shape, chunk, compressed, named = draw(shapes), draw(st.integers(1, 4)), draw(flag), draw(flag)
        if not self.make_parents(path):
            return
        chunks = (chunk,) * len(shape)
        fill = 3 if compressed else 0
        if path in self.work.tree:
            del self.root[path]
        self.root.create_array(
            path,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value=fill,
            compressors="auto" if compressed else None,
            dimension_names=["x", None][: len(shape)] if named and shape else None,
        )
        self.work.tree[path] = Array(np.full(shape, fill, dtype), chunks, {})
        self.changed()

    def arrays(self) -> list[str]:
        return sorted(
            path for path, node in self.work.tree.items() if isinstance(node, Array) and path != VIRTUAL
        )

    def array(self, pick: int) -> tuple[str, Array]:
        path = self.pick(self.arrays(), pick)
        node = self.work.tree[path]
        assert isinstance(node, Array)
        return path, node

    def edit_write(self, draw: Draw) -> None:
        (path, node), value = self.array(draw(number)), draw(st.integers(0, 200))
        where = tuple(
            slice(*sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size)))))
            for size in node.values.shape
        )
        values = node.values.copy()
        values[where] = np.arange(value, value + values[where].size).reshape(values[where].shape)
        session = self.work.session
        if isinstance(session, frazil.Session) and value % 2:
            frazil.Array(session, path)[where] = values[where]
        else:
            self.root[path][where] = values[where]
        self.work.tree[path] = replace(node, values=values)
        if values[where].size:
            self.changed()

    def edit_no_chunk(self, draw: Draw) -> None:
        (path, node), corner = self.array(draw(number)), draw(st.tuples(number, number))
        index = [
            at % max(1, size) // chunk
            for at, size, chunk in zip(corner, node.values.shape, node.chunks, strict=False)
        ]
        if 0 in node.values.shape:
            return
        sync(self.work.session.store.delete("/".join([path, "c", *map(str, index)])))
        values = node.values.copy()
        where = tuple(
            slice(at * chunk, (at + 1) * chunk) for at, chunk in zip(index, node.chunks, strict=True)
        )
        values[where] = array_at(self.work.session, path).fill_value
        self.work.tree[path] = replace(node, values=values)
        self.changed()

    def edit_no_node(self, draw: Draw) -> None:
        path = self.pick(sorted(path for path in self.work.tree if path), draw(number))
        del self.root[path]
        for each in [p for p in self.work.tree if p == path or p.startswith(path + "/")]:
            del self.work.tree[each]
        self.changed()

    def edit_resize(self, draw: Draw) -> None:
        path, node = self.array(draw(number))
        shape = draw(st.tuples(st.integers(0, 9), st.integers(1, 6)))
        if not node.values.shape:
            return
        wanted = small(shape[: node.values.ndim], node.chunks)
        array = self.root[path]
        array.resize(wanted)
        values = np.full(wanted, array.fill_value, node.values.dtype)
        both = tuple(slice(0, min(a, b)) for a, b in zip(wanted, node.values.shape, strict=True))
        values[both] = node.values[both]
        self.work.tree[path] = replace(node, values=values)
        self.changed()

    def edit_attribute(self, draw: Draw) -> None:
        path, value = self.pick(sorted(self.work.tree), draw(number)), draw(json_values)
        node = self.work.tree[path]
        (self.root[path] if path else self.root).attrs["k"] = value
        if isinstance(node, Array):
            self.work.tree[path] = replace(node, attributes={**node.attributes, "k": value})
        else:
            self.work.tree[path] = {**node, "k": value}
        self.changed()

    def edit_virtual(self, draw: Draw) -> None:
        chunk, offset, relative, many = (
            draw(st.integers(0, 5)), draw(st.integers(0, 190)), draw(flag), draw(flag),
        )  # fmt: skip
        if VIRTUAL not in self.work.tree:
            self.make_parents(VIRTUAL)
            self.root.create_array(VIRTUAL, shape=(18,), chunks=(3,), dtype="u1", compressors=None)
            self.work.tree[VIRTUAL] = Array(np.zeros(18, "u1"), (3,), {})
        node = self.work.tree[VIRTUAL]
        assert isinstance(node, Array)
        location = "vcc://files/data.bin" if relative else f"{self.ours.prefix}data.bin"
        values = node.values.copy()
        count = min(2, 6 - chunk) if many else 1
        store = self.work.session.store
        if many:
            offsets = np.full(count, offset, "u8")
            lengths = np.full(count, 3, "u8")
            store.set_virtual_refs_arr(
                VIRTUAL, (count,), [location] * count, offsets, lengths, arr_offset=(chunk,)
            )
        else:
            store.set_virtual_ref(f"{VIRTUAL}/c/{chunk}", location, offset=offset, length=3)
        for at in range(chunk, chunk + count):
            values[at * 3 : at * 3 + 3] = list(DATA[offset : offset + 3])
        self.work.tree[VIRTUAL] = replace(node, values=values)
        self.changed()

    # Ends of sessions

    @rule(commit_metadata=metadata, rest=st.booleans())
    def commit(self, commit_metadata: dict[str, Any], rest: bool) -> None:
        work = self.work
        self.check_tree(work.session, work.tree)
        self.number += 1
        message = f"commit {self.number} é"
        package = frazil if isinstance(work.session, frazil.Session) else icechunk
        if not work.session.has_uncommitted_changes and not rest:
            with pytest.raises(package.SessionStateError) as error:
                work.session.commit(message)
            assert error.value.kind == "no-changes-to-commit"
            return
        if self.model.branches.get(work.branch) != work.base:
            with pytest.raises(package.ConflictError) as conflict:
                work.session.commit(message, commit_metadata, allow_empty=True)
            assert conflict.value.expected_parent == work.base
            assert conflict.value.actual_parent == self.model.branches[work.branch]
            self.after_conflict(message, commit_metadata)
            self.next_turn()
            return
        assert work.is_dirty or not work.session.has_uncommitted_changes
        status = diff_text(work.session.status())
        id_ = work.session.commit(message, commit_metadata, allow_empty=True)
        self.committed(work.branch, id_, work.tree, message, commit_metadata)
        assert diff_of(self.ours.repo, work.base, id_) == status
        self.next_turn()

    def after_conflict(self, message: str, commit_metadata: dict[str, Any]) -> None:
        self.work.session.discard_changes()

    def committed(
        self, branch: str, id_: str, tree: Tree, message: str, commit_metadata: dict[str, Any]
    ) -> None:
        parent = self.model.branches[branch]
        self.model.versions[id_] = Version(parent, dict(tree), message, commit_metadata)
        self.model.branches[branch] = id_
        self.model.ops.append("NewCommit")
        self.remember_snapshot(id_)

    def remember_snapshot(self, id_: str) -> None:
        """Both see a new version as the model does."""
        parent, tree = self.model.versions[id_].parent, self.model.versions[id_].tree
        assert parent is not None
        self.check_state()
        check_same_snapshot(self.ours, self.theirs, id_)
        for side in (self.ours, self.theirs):
            self.check_tree(side.repo.readonly_session(snapshot_id=id_), tree)
        assert diff_of(self.ours.repo, parent, id_) == diff_of(self.theirs.repo, parent, id_)
        assert diff_of(self.ours.repo, ROOT, id_) == diff_of(self.theirs.repo, ROOT, id_)

    @rule(data=st.data(), kinds=st.lists(st.sampled_from(EDITS), min_size=1, max_size=6))
    def edit(self, data: Any, kinds: list[str]) -> None:
        for kind in kinds:
            needs_array = kind not in ("group", "array", "virtual")
            name = "array" if needs_array and not self.arrays() else kind
            getattr(self, f"edit_{name}")(data.draw)

    @rule(
        data=st.data(),
        kinds=st.lists(st.sampled_from(EDITS), min_size=1, max_size=6),
        commit_metadata=metadata,
    )
    def edit_and_commit(self, data: Any, kinds: list[str], commit_metadata: dict[str, Any]) -> None:
        """A commit that changes something."""
        self.edit(data, kinds)
        self.end(data, commit_metadata)

    def end(self, data: Any, commit_metadata: dict[str, Any]) -> None:
        self.commit(commit_metadata, True)

    @precondition(lambda self: not self.idle)
    @rule()
    def discard(self) -> None:
        self.work.session.discard_changes()
        assert not self.work.session.has_uncommitted_changes
        self.work.tree = dict(self.model.versions[self.work.base].tree)
        self.work.is_dirty = False
        self.check_tree(self.work.session, self.work.tree)

    @rule(is_ours=who, pick=st.integers(0, 9), value=st.integers(0, 99))
    def transaction(self, is_ours: bool, pick: int, value: int) -> None:
        """A commit at once: a session that is open may find it there before its own."""
        branch = self.pick(sorted(self.model.branches), pick)
        tree = dict(self.model.versions[self.model.branches[branch]].tree)
        self.number += 1
        message, value = f"transaction {self.number}", value + 100 * self.number
        with self.side(is_ours).repo.transaction(branch, message=message, metadata={"n": value}) as store:
            root = zarr.open_group(store, mode="a")
            root.attrs["value"] = value
        attributes = tree.get("", {})
        assert isinstance(attributes, dict)
        tree[""] = {**attributes, "value": value}
        self.committed(branch, self.side(not is_ours).repo.lookup_branch(branch), tree, message, {"n": value})

    @rule(
        is_ours=who, pick=st.integers(0, 9), parts=st.integers(1, 3), dirty=st.booleans(), wide=st.booleans()
    )
    def fork_and_merge(self, is_ours: bool, pick: int, parts: int, dirty: bool, wide: bool) -> None:
        """Forks that went through a pickle each write some chunks of one array."""
        branch = self.pick(sorted(self.model.branches), pick)
        tree = dict(self.model.versions[self.model.branches[branch]].tree)
        session = self.side(is_ours).repo.writable_session(branch)
        root = zarr.open_group(session.store, mode="a")
        size = 6 if wide else 2  # inline, or in packs
        values = np.arange(parts * size, dtype="f8") + self.number
        if "forked" in tree:
            del root["forked"]
        forked = root.create_array("forked", shape=values.shape, chunks=(size,), dtype="f8", compressors=None)
        tree.setdefault("", {})
        tree["forked"] = Array(values, (size,), {})
        self.number += 1
        message = f"forks {self.number}"
        if dirty and size > 2:
            forked[:size] = 77
        forks = [pickle.loads(pickle.dumps(session.fork())) for _ in range(parts)]
        for number, fork in enumerate(forks):
            region = slice(number * size, (number + 1) * size)
            zarr.open_array(fork.store, path="forked")[region] = values[region]
        session.merge(*(pickle.loads(pickle.dumps(fork)) for fork in forks))
        self.check_tree(session, tree)
        self.committed(branch, session.commit(message), tree, message, {})

    # Refs and the repository

    def named(self, ref: str) -> str:
        """Spec version 1 has neither slashes nor accents in names of refs."""
        return ref if self.spec > 1 else ref.replace("/", "-").replace("é", "e")

    @rule(is_ours=who, name=st.sampled_from(["dev", "b/c", "é", "a"]), pick=st.integers(0, 99))
    def create_branch(self, is_ours: bool, name: str, pick: int) -> None:
        name = self.named(name)
        target = self.pick(list(self.model.versions), pick)
        side = self.side(is_ours)
        if name in self.model.branches:
            with pytest.raises(side.package.IcechunkError) as error:
                side.repo.create_branch(name, target)
            assert error.value.kind in ("branch-already-exists", "branch-update-conflict")
            return
        side.repo.create_branch(name, target)
        self.model.branches[name] = target
        self.model.ops.append("BranchCreated")
        self.check_state()

    @precondition(lambda self: self.idle and len(self.model.branches) > 1)
    @rule(is_ours=who, pick=st.integers(0, 9))
    def delete_branch(self, is_ours: bool, pick: int) -> None:
        name = self.pick(sorted(set(self.model.branches) - {"main"}), pick)
        self.side(is_ours).repo.delete_branch(name)
        del self.model.branches[name]
        self.model.ops.append("BranchDeleted")
        self.check_state()
        self.next_turn()

    @precondition(lambda self: self.idle)
    @rule(is_ours=who, pick=st.integers(0, 9), aim=st.integers(0, 99), sure=st.booleans())
    def reset_branch(self, is_ours: bool, pick: int, aim: int, sure: bool) -> None:
        name = self.pick(sorted(self.model.branches), pick)
        to = self.pick(list(self.model.versions), aim)
        expected = self.model.branches[name] if sure else None
        self.side(is_ours).repo.reset_branch(name, to, from_snapshot_id=expected)
        self.model.branches[name] = to
        self.model.ops.append("BranchReset")
        self.check_state()
        self.next_turn()

    @rule(is_ours=who, name=st.sampled_from(["v1", "v2", "é/x", "0"]), pick=st.integers(0, 99))
    def create_tag(self, is_ours: bool, name: str, pick: int) -> None:
        name = self.named(name)
        side, target = self.side(is_ours), self.pick(list(self.model.versions), pick)
        if name in self.model.tags or name in self.model.deleted_tags:
            with pytest.raises(side.package.AlreadyExistsError) as error:
                side.repo.create_tag(name, target)
            exists = name in self.model.tags or self.spec == 1
            wanted = "tag-already-exists" if exists else "tag-previously-deleted"
            assert error.value.kind == wanted
            return
        side.repo.create_tag(name, target)
        self.model.tags[name] = target
        self.model.ops.append("TagCreated")
        self.check_state()

    @precondition(lambda self: self.model.tags)
    @rule(is_ours=who, pick=st.integers(0, 9))
    def delete_tag(self, is_ours: bool, pick: int) -> None:
        name = self.pick(sorted(self.model.tags), pick)
        self.side(is_ours).repo.delete_tag(name)
        del self.model.tags[name]
        self.model.deleted_tags.add(name)
        self.model.ops.append("TagDeleted")
        self.check_state()

    @precondition(lambda self: self.spec > 1)
    @rule(is_ours=who, repo_metadata=metadata, added=st.booleans())
    def set_metadata(self, is_ours: bool, repo_metadata: dict[str, Any], added: bool) -> None:
        repo = self.side(is_ours).repo
        if added:
            repo.update_metadata(repo_metadata)
            self.model.metadata = {**self.model.metadata, **repo_metadata}
        else:
            repo.set_metadata(repo_metadata)
            self.model.metadata = repo_metadata
        self.model.ops.append("MetadataChanged")
        self.check_state()

    @precondition(lambda self: self.idle or self.spec > 1)
    @rule(is_ours=who)
    def save_config(self, is_ours: bool) -> None:
        """And both start anew from what was saved; in version 1 a handle saves only over what it knows."""
        self.side(is_ours).repo.save_config()
        self.model.ops.append("ConfigChanged")
        if self.idle:
            self.ours.open()
            self.theirs.open()
            assert self.ours.repo.config.inline_chunk_threshold_bytes == 12
            assert self.theirs.repo.config.inline_chunk_threshold_bytes == 12
            self.next_turn()
        self.check_state()

    @precondition(lambda self: self.idle and self.quiet > 12)
    @rule()
    def collect_garbage(self) -> None:
        """By the reference, which has to leave alone what is alive in files with many chunks."""
        self.quiet = 0
        before = self.model.reachable()
        self.theirs.repo.garbage_collect(datetime.now(UTC) + timedelta(seconds=5))
        self.model.versions = {id_: v for id_, v in self.model.versions.items() if id_ in before}
        self.model.ops.append("GCRan")
        self.check_state()
        self.check_all()
        self.next_turn()

    @rule(
        pick=number,
        place=st.integers(0, 2**16),
        how=st.sampled_from(["build", "flip", "cut", "exchange", "delete"]),
    )
    def change_statistics(self, pick: int, place: int, how: str) -> None:
        """Build the statistics of chunks, or damage a file of them."""
        files = sorted((self.ours.path / "statistics").glob("*"))
        if how == "build" or not files:
            frazil.Repository.open(self.ours.storage(), None, self.ours.access).upkeep.build_statistics()
            return
        file, other = files[pick % len(files)], files[place % len(files)]
        data = bytearray(file.read_bytes())
        at = place % max(1, len(data))
        match how:
            case "flip" if data:
                data[at] ^= 1 << pick % 8
            case "cut":
                del data[at:]
            case "exchange":
                data = bytearray(other.read_bytes())
        file.unlink()
        if how != "delete":
            file.write_bytes(data)

    @precondition(lambda self: self.idle and self.spec > 1)
    @rule(pick=number, compacts=flag)
    def rewrite(self, pick: int, compacts: bool) -> None:
        """A commit with the same content, in other manifests or other chunk files."""
        branch = self.pick(sorted(self.model.branches), pick)
        tip, repo = self.model.branches[branch], self.ours.repo
        if compacts:
            repo.upkeep.compact("rewritten", branch=branch).apply()
        else:
            repo.rewrite_manifests("rewritten", branch=branch)
        id_ = repo.lookup_branch(branch)
        if id_ != tip:
            stored = repo.lookup_snapshot(id_)
            self.committed(branch, id_, self.model.versions[tip].tree, stored.message, stored.metadata)
        self.next_turn()

    # What is read

    @rule(is_ours=who, pick=st.integers(0, 99), how=st.sampled_from(["snapshot", "branch", "tag", "as_of"]))
    def read(self, is_ours: bool, pick: int, how: str) -> None:
        repo, model = self.side(is_ours).repo, self.model
        if how == "tag" and model.tags:
            name = self.pick(sorted(model.tags), pick)
            session, wanted = repo.readonly_session(tag=name), model.tags[name]
        elif how == "branch":
            name = self.pick(sorted(model.branches), pick)
            session, wanted = repo.readonly_session(name), model.branches[name]
        elif how == "as_of":
            name = self.pick(sorted(model.branches), pick)
            wanted = self.pick(model.chain(model.branches[name]), pick // 7)
            when = repo.lookup_snapshot(wanted).written_at
            session = repo.readonly_session(name, as_of=when)
        else:
            wanted = self.pick(list(model.versions), pick)
            session = repo.readonly_session(snapshot_id=wanted)
        assert session.snapshot_id == wanted
        assert session.read_only
        self.check_tree(session, model.versions[wanted].tree)

    def check_tree(self, session: Any, tree: Tree) -> None:
        members: dict[str, Any] = {}
        if tree:
            root = zarr.open_group(session.store, mode="r")
            members = {"": root, **dict(root.members(max_depth=None))}
        assert set(members) == set(tree)
        for path, node in tree.items():
            if isinstance(node, Array):
                values = np.asarray(members[path][...])
                assert (values.dtype, values.shape) == (node.values.dtype, node.values.shape)
                assert np.array_equal(values, node.values), path
                if isinstance(session, frazil.Session):
                    array = frazil.Array(session, path or "/")
                    assert np.array_equal(array[...], node.values), path
                    check_answers(array, node.values)
            attributes = node.attributes if isinstance(node, Array) else node
            assert dict(members[path].attrs) == attributes

    def check_state(self) -> None:
        """Both agree on refs, history and operations, with each other and the model."""
        self.quiet += 1
        model, state = self.model, state_of(self.ours.repo)
        assert state == state_of(self.theirs.repo)
        assert state["refs"] == {"branches": model.branches, "tags": model.tags}
        if self.spec > 1:
            assert [op["kind"].partition("(")[0] for op in state["ops"]] == model.ops[::-1]
            assert state["metadata"] == model.metadata
        assert self.ours.repo._info().deleted_tags == model.deleted_tags
        for ref, chain in state["history"].items():
            kind, _, name = ref.partition(":")
            tip = (model.branches if kind == "branch" else model.tags)[name]
            assert [entry["id"] for entry in chain] == model.chain(tip)
            for entry in chain:
                version = model.versions[entry["id"]]
                assert (entry["parent_id"], entry["message"]) == (version.parent, version.message)
                assert entry["metadata"] == version.metadata

    def check_all(self) -> None:
        """With handles that know nothing yet."""
        ours, theirs = sides(self.ours.path, self.ours.virtual, self.spec)
        seen = check_same(ours.open(), theirs.open())
        for id_ in seen["content"]:
            self.check_tree(ours.repo.readonly_session(snapshot_id=id_), self.model.versions[id_].tree)
        assert ours.repo.upkeep.verify("checksum").ok
        check_same_files(ours, theirs)
