"""Frazil and the published icechunk take turns, and make versions in other ways than by a plain commit:
amended, detached, moved, shifted, rebased, and a repository that is upgraded under both.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import icechunk
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.interop.both import ROOT, state_of
from tests.interop.turns import EDITS, VIRTUAL, Array, Tree, Turns, Version, metadata, who
from tests.support.examples import examples

PLACES = ("", "g", "g-b", "m")
NAMES = ("m", "n-1", "é2")
moves = st.lists(
    st.tuples(st.integers(0, 19), st.sampled_from(PLACES), st.sampled_from(NAMES)), min_size=1, max_size=3
)


class VersionTurns(Turns):
    def end(self, data: Any, commit_metadata: dict[str, Any]) -> None:
        match data.draw(st.sampled_from(["commit", "commit", "amend", "flush", "moves"])):
            case "amend":
                self.amend(commit_metadata)
            case "flush":
                self.flush(commit_metadata)
            case "moves":
                super().end(data, commit_metadata)
                names = sorted(self.model.branches)
                branch = names.index(self.work.branch) if self.work.branch in names else 0
                self.move(data.draw(who), branch, data.draw(moves), data.draw(st.booleans()))
            case _:
                super().end(data, commit_metadata)

    # Amended and detached

    @rule(commit_metadata=metadata)
    def amend(self, commit_metadata: dict[str, Any]) -> None:
        work, model = self.work, self.model
        package = self.package_of(work.session)
        self.number += 1
        message = f"amended {self.number}"
        tip = model.branches.get(work.branch)
        if self.spec < 2:
            self.refused(package.FormatError, "unsupported-spec-version", work.session.amend, message)
        elif not work.session.has_uncommitted_changes:
            self.refused(package.SessionStateError, "no-changes-to-commit", work.session.amend, message)
        elif work.base == ROOT:
            kind = "no-amend-for-initial-commit"
            self.refused(package.SessionStateError, kind, work.session.amend, message)
        elif tip == work.base and model.versions[work.base].has_moves:
            kind = "rearrange-session-only"
            self.refused(package.SessionStateError, kind, work.session.amend, message)
        elif tip == work.base:
            id_ = work.session.amend(message, metadata=commit_metadata)
            self.amended(work.branch, id_, Version(None, dict(work.tree), message, commit_metadata))
            self.next_turn()

    def amended(self, branch: str, id_: str, version: Version) -> None:
        old = self.model.versions[self.model.branches[branch]]
        self.model.versions[id_] = replace(version, parent=old.parent)
        self.model.branches[branch] = id_
        self.model.ops.append("CommitAmended")
        self.remember_snapshot(id_)

    @rule(commit_metadata=metadata)
    def flush(self, commit_metadata: dict[str, Any]) -> None:
        work = self.work
        self.number += 1
        message = f"detached {self.number}"
        id_ = work.session.flush(message, metadata=commit_metadata)
        assert work.session.read_only
        assert work.session.branch is None
        assert work.session.snapshot_id == id_
        self.model.versions[id_] = Version(work.base, dict(work.tree), message, commit_metadata)
        self.model.ops.append("NewDetachedSnapshot")
        self.remember_snapshot(id_)
        self.next_turn()

    # Moved and shifted

    @rule(is_ours=who, pick=st.integers(0, 9), steps=moves, amends=st.booleans())
    def move(self, is_ours: bool, pick: int, steps: list[tuple[int, str, str]], amends: bool) -> None:
        side, model = self.side(is_ours), self.model
        branch = self.pick(sorted(model.branches), pick)
        if self.spec < 2:
            self.refused(
                side.package.FormatError, "unsupported-spec-version", side.repo.rearrange_session, branch
            )
            return
        tip = model.branches[branch]
        session, tree = side.repo.rearrange_session(branch), dict(model.versions[tip].tree)
        moved = False
        for number, place, name in steps:
            source = self.pick(sorted(path for path in tree if path not in {"", VIRTUAL}) or [""], number)
            target = f"{place}/{name}".lstrip("/")
            if source and self.move_in(session, tree, source, target):
                moved = True
        self.check_tree(session, tree)
        if not session.has_uncommitted_changes:
            return
        assert moved
        self.number += 1
        message = f"moved {self.number}"
        if amends and tip != ROOT:
            id_ = session.amend(message)
            self.amended(branch, id_, Version(None, tree, message, {}))
        else:
            id_ = session.commit(message)
            self.committed(branch, id_, tree, message, {})
        # Nodes may be back where they were.
        log = icechunk.Repository.open(self.theirs.storage()).inspect_transaction_log(id_)
        model.versions[id_] = replace(model.versions[id_], has_moves=bool(log["moved_nodes"]))
        if self.idle:
            self.next_turn()

    def move_in(self, session: Any, tree: Tree, source: str, target: str) -> bool:
        """Move if it can be done, else see it refused."""
        package, parent = self.package_of(session), target.rpartition("/")[0]
        refusal = None
        if f"{target}/".startswith(f"{source}/"):
            refusal = (package.SessionStateError, "move-into-self-or-descendant")
        elif target in tree:
            refusal = (package.AlreadyExistsError, "move-wont-overwrite")
        elif parent not in tree:
            refusal = (package.SessionStateError, "move-destination-parent-missing")
        elif isinstance(tree[parent], Array):
            refusal = (package.SessionStateError, "move-destination-parent-not-group")
        if refusal is not None:
            self.refused(*refusal, session.move, f"/{source}", f"/{target}")
            return False
        session.move(f"/{source}", f"/{target}")
        for path in [path for path in tree if f"{path}/".startswith(f"{source}/")]:
            tree[target + path[len(source) :]] = tree.pop(path)
        return True

    @precondition(lambda self: self.arrays())
    @rule(pick=st.integers(0, 9), by=st.tuples(st.integers(-2, 2), st.integers(-2, 2)), steps=st.booleans())
    def shift(self, pick: int, by: tuple[int, int], steps: bool) -> None:
        """By whole chunks; or by a function of coordinates that does the same."""
        work = self.work
        path, node = self.array(pick)
        shape, offset = node.values.shape, by[: node.values.ndim]
        if any(size % chunk for size, chunk in zip(shape, node.chunks, strict=True)) or 0 in shape:
            return  # part of a chunk that nobody sees would come to light
        if steps:
            counts = [size // chunk for size, chunk in zip(shape, node.chunks, strict=True)]
            work.session.reindex_array(f"/{path}", _step(offset, counts, 1), _step(offset, counts, -1))
        else:
            work.session.shift_array(f"/{path}", offset)
        fill = self.root[path].fill_value
        values = np.full(shape, fill, node.values.dtype)
        by_cells = [step * chunk for step, chunk in zip(offset, node.chunks, strict=True)]
        into = tuple(
            slice(max(0, n), max(0, size + min(0, n))) for n, size in zip(by_cells, shape, strict=True)
        )
        out_of = tuple(
            slice(max(0, -n), max(0, size - max(0, n))) for n, size in zip(by_cells, shape, strict=True)
        )
        values[into] = node.values[out_of]
        work.tree[path] = replace(node, values=values)
        work.is_dirty = work.is_dirty or work.session.has_uncommitted_changes

    # Rebased and upgraded

    @rule(
        data=st.data(),
        mine=st.lists(st.sampled_from(EDITS), min_size=1, max_size=3),
        theirs=st.lists(st.lists(st.sampled_from(EDITS), max_size=3), min_size=1, max_size=2),
        commit_metadata=metadata,
    )
    def race(
        self, data: Any, mine: list[str], theirs: list[list[str]], commit_metadata: dict[str, Any]
    ) -> None:
        """The other side commits, once or twice, before the session that is open does."""
        work = self.work
        if self.model.branches.get(work.branch) != work.base:
            return
        self.edit(data, mine)
        other = self.package_of(work.session) is not self.ours.package
        for kinds in theirs:
            self.begin(other, work.branch)
            self.edit(data, kinds)
            self.commit({}, True)
        self.work = work
        self.commit(commit_metadata, True)

    def after_conflict(self, message: str, commit_metadata: dict[str, Any]) -> None:
        """What touched other nodes than the commits before goes on top of them."""
        work, model = self.work, self.model
        tip = model.branches.get(work.branch)
        tree = None if tip is None else self.rebased(work.base, tip, work.tree)
        if tree is None or not work.session.has_uncommitted_changes:
            super().after_conflict(message, commit_metadata)
            return
        assert tip is not None
        package = self.package_of(work.session)
        id_ = work.session.commit(message, commit_metadata, rebase_with=package.ConflictDetector())
        stored_metadata = self.ours.repo.lookup_snapshot(id_).metadata
        attempts = stored_metadata.pop("__icechunk")
        assert stored_metadata == commit_metadata
        assert attempts == {"rebase_attempts": 1}
        self.committed(work.branch, id_, tree, message, {**commit_metadata, "__icechunk": attempts})

    def rebased(self, base: str, tip: str, mine: Tree) -> Tree | None:
        """The tree with the changes of both sides; None where that is a matter of opinion."""
        versions = self.model.versions
        line = self.model.chain(tip)
        if base not in line:
            return None
        new = line[: line.index(base)]
        if any(versions[id_].has_moves for id_ in new):
            return None
        out = dict(versions[tip].tree)
        # What was written again as it was leaves a trace in the logs: all that somebody touched counts.
        mine_touched = touched(self.work.session.status())
        repo = self.theirs.repo
        ids = [*new, base]
        their_touched = set().union(
            *(
                touched(repo.diff(from_snapshot_id=before, to_snapshot_id=after))
                for after, before in pairwise(ids)
            )
        )
        if mine_touched & their_touched:
            return None
        for path in mine_touched:
            if path in mine:
                out[path] = mine[path]
            else:
                out.pop(path, None)
        parents = {path.rpartition("/")[0] for path in out if path}
        if any(not isinstance(out.get(parent), dict) for parent in parents):
            return None
        return out

    @precondition(lambda self: self.spec == 1 and self.idle and len(self.model.versions) > 3)
    @rule(is_ours=who, keeps=st.booleans())
    def upgrade(self, is_ours: bool, keeps: bool) -> None:
        side = self.side(is_ours)
        upgrade = side.package.upgrade_icechunk_repository
        upgrade(side.repo, dry_run=True)
        self.check_state()
        upgraded = upgrade(side.repo, dry_run=False, delete_unused_v1_files=not keeps)
        assert str(upgraded.spec_version).startswith("SpecVersion.v2")
        self.ours.open()
        self.theirs.open()
        self.spec = self.ours.spec = self.theirs.spec = 2
        # Versions that no ref reaches are left behind.
        live = self.model.reachable()
        self.model.versions = {id_: v for id_, v in self.model.versions.items() if id_ in live}
        ops = [op["kind"].partition("(")[0] for op in state_of(self.theirs.repo)["ops"]]
        assert ops[0] == "RepoMigrated"
        assert ops[-1] == "RepoInitialized"
        chains = map(self.model.chain, self.model.branches.values())
        assert ops.count("NewCommit") == len(set().union(*chains)) - 1
        self.model.ops = ops[::-1]
        self.check_state()
        self.check_all()
        self.next_turn()

    def package_of(self, session: Any) -> Any:
        ours = isinstance(session, self.ours.package.Session)
        return (self.ours if ours else self.theirs).package

    @staticmethod
    def refused(error: type[Exception], kind: str, act: Any, *arguments: Any) -> None:
        with pytest.raises(error) as caught:
            act(*arguments)
        assert caught.value.kind == kind  # type: ignore[attr-defined]


def touched(diff: Any) -> set[str]:
    """Paths of all that a difference tells of, as the model has them."""
    lists = (diff.new_groups, diff.new_arrays, diff.deleted_groups, diff.deleted_arrays)
    updated = (diff.updated_groups, diff.updated_arrays, diff.updated_chunks)
    return {path.strip("/") for path in chain.from_iterable((*lists, *updated))}


def _step(offset: tuple[int, ...], counts: list[int], sign: int) -> Any:
    def step(index: Any) -> list[int] | None:
        moved = [at + sign * by for at, by in zip(index, offset, strict=True)]
        return moved if all(0 <= at < n for at, n in zip(moved, counts, strict=True)) else None

    return step


IS_DEEP = settings.get_current_profile_name() == "fuzz"
pytestmark = [pytest.mark.deep, pytest.mark.interop, pytest.mark.timeout(7200 if IS_DEEP else 600)]

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
TestTurns = VersionTurns.TestCase
TestTurns.settings = settings(
    max_examples=500 if IS_DEEP else examples(40),
    stateful_step_count=100 if IS_DEEP else 40,
    suppress_health_check=QUIET,
)
