"""Withdrawals between writes of both implementations, refs, expirations and collections, in any order.

A model has the elements of each commit. After each withdrawal, no file has a withdrawn element, and both
implementations read all other elements in all versions.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.maintenance.withdrawal.test_withdrawal import files_with, secret
from tests.support.examples import examples
from tests.support.judge import reference, reference_storage

import frazil

pytestmark = pytest.mark.deep

SIZE = 12
NAMES = st.sampled_from(["main", "dev"])
PATHS = st.sampled_from(["a", "b"])
STARTS = st.integers(0, SIZE - 1)
LENGTHS = st.integers(1, SIZE)


class Withdrawing(RuleBasedStateMachine):
    @initialize(inline=st.sampled_from([0, 40]), packs=st.booleans(), chunk=st.sampled_from([3, 5]))
    def start(self, inline: int, packs: bool, chunk: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.config = frazil.RepositoryConfig(
            inline_chunk_threshold_bytes=inline, packing=frazil.PackingConfig(enabled=packs)
        )
        self.storage = frazil.local_filesystem_storage(str(self.path), flush=False)
        self.repo = frazil.Repository.create(self.storage, self.config)
        self.contents: dict[str, dict[str, Any]] = {}
        self.number = 0
        self.writes: list[tuple[str, int, int]] = []  # path, position, number of the secret element
        self.gone: set[int] = set()
        with self.repo.transaction("main", message="0") as store:
            for path in ("a", "b"):
                zarr.create_array(
                    store, name=path, shape=(SIZE,), chunks=(chunk,), dtype="i8", compressors=None
                )
        self.contents["0"] = {path: np.zeros(SIZE, "i8") for path in ("a", "b")}
        self.repo.create_branch("dev", self.repo.lookup_branch("main"))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(branch=NAMES, path=PATHS, start=STARTS, length=LENGTHS, by_reference=st.booleans())
    def write(self, branch: str, path: str, start: int, length: int, by_reference: bool) -> None:
        stop = min(start + length, SIZE)
        new = secret(stop - start, self.number + 1)
        tip = next(iter(self.repo.ancestry(branch=branch))).message
        message = str(len(self.contents))
        repo = self.repo
        if by_reference:
            repo = reference().Repository.open(reference_storage(self.path))
        session = repo.writable_session(branch)
        zarr.open_array(session.store, path=path)[start:stop] = new
        session.commit(message)
        self.contents[message] = {name: each.copy() for name, each in self.contents[tip].items()}
        self.contents[message][path][start:stop] = new
        self.writes += [(path, start + at, self.number + 1 + at) for at in range(stop - start)]
        self.number += stop - start

    @rule(branch=NAMES)
    def tag(self, branch: str) -> None:
        name = f"v{len(self.repo.list_tags())}"
        self.repo.create_tag(name, self.repo.lookup_branch(branch))

    @rule(branch=NAMES, to=NAMES)
    def reset(self, branch: str, to: str) -> None:
        self.repo.reset_branch(branch, self.repo.lookup_branch(to))

    @rule()
    def expire(self) -> None:
        self.repo.upkeep.expire(datetime.now(UTC)).apply()

    @rule()
    def collect(self) -> None:
        self.repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))

    @rule()
    def compact(self) -> None:
        tip = next(iter(self.repo.ancestry(branch="main"))).message
        self.repo.upkeep.compact(f"c{len(self.contents)}", branch="main").apply()
        message = next(iter(self.repo.ancestry(branch="main"))).message
        if message != tip:
            self.contents[message] = self.contents[tip]

    @rule(path=PATHS, start=STARTS, length=LENGTHS)
    def forget(self, path: str, start: int, length: int) -> None:
        stop = min(start + length, SIZE)
        certificate = self.repo.upkeep.forget({path: slice(start, stop)}).apply()
        for each in self.contents.values():
            each[path][start:stop] = 0
        self.gone |= {number for name, at, number in self.writes if name == path and start <= at < stop}
        if not certificate.ok:
            assert all("collect garbage" in text for text in certificate.left)
            self.collect()
            assert self.repo.upkeep.certificates()[-1].ok
        gone = np.array(sorted(self.gone), "i8") + secret(1, 0)[0]
        assert files_with(self.storage, gone) == []
        assert self.repo.upkeep.verify(level="checksum").ok
        self.read()

    def read(self) -> None:
        for repo in (self.repo, reference().Repository.open(reference_storage(self.path))):
            refs = [{"branch": name} for name in repo.list_branches()]
            refs += [{"tag": name} for name in repo.list_tags()]
            for each in (each for ref in refs for each in repo.ancestry(**ref)):
                for path, expected in self.contents.get(each.message, {}).items():
                    store = repo.readonly_session(snapshot_id=each.id).store
                    found = zarr.open_array(store, path=path, mode="r")[...]
                    np.testing.assert_array_equal(found, expected)


Withdrawing.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=14)
TestWithdrawing = Withdrawing.TestCase
