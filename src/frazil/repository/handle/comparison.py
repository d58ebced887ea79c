"""The methods of ``Repository`` that compare the data of versions: differences in values, and bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.format.ids import id_to_text
from frazil.lazy_names import value_of
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog.expired_versions import snapshots_wanted
from frazil.repository.catalog.missing_names import no_version
from frazil.repository.catalog.version_names import find_snapshot
from frazil.repository.handle.sessions import Sessions
from frazil.repository.handle.version_argument import snapshot_of_version
from frazil.repository.history.bisect import BisectReport
from frazil.repository.history.bisect import bisect as bisect_versions
from frazil.repository.history.value_report import ValueDifference
from frazil.repository.session.session import Session

#: The values of the methods are public, so that `frazil.snapshots` imports them from this room.
__all__ = ["BisectReport", "Comparison", "ValueDifference"]

#: Modules that import zarr or the extra `pipeline`, which most programs do not need.
_VALUES = "frazil.repository.history.value_differences:value_differences"
_VALIDATE = "frazil.pipeline.validation.operation:validate"


class Comparison(Sessions):
    """Methods of ``Repository`` that compare the data of versions."""

    def diff_values(
        self,
        path: str,
        *,
        from_branch: str | None = None,
        from_tag: str | None = None,
        from_snapshot_id: str | None = None,
        to_branch: str | None = None,
        to_tag: str | None = None,
        to_snapshot_id: str | None = None,
        decode: bool = True,
    ) -> ValueDifference:
        """Return the differences in the values of an array between two versions.

        The values are decoded by the CF conventions, each version with its own attributes: packing, missing
        values, booleans, times. So another ``scale_factor`` changes the values, and another packing of the
        same values does not.

        Only chunks that differ are read, or all chunks if the attributes that decode them differ. If the
        array was moved, ``path`` is its path in the later version. Exactly one of the ``from_`` arguments and
        one of the ``to_`` arguments name the versions.

        Args:
            path: The path of the array in the second version.
            from_branch: The branch of the first version.
            from_tag: The tag of the first version.
            from_snapshot_id: The snapshot id of the first version, or the first characters of an id.
            to_branch: The branch of the second version.
            to_tag: The tag of the second version.
            to_snapshot_id: The snapshot id of the second version, or the first characters of an id.
            decode: Compare decoded values. False compares the stored numbers.

        Returns:
            The number of changed cells, the mean, the maximum and the RMSE of their differences with their
            units, the changed cells of each chunk, and the numbers of new and of removed cells.

        Raises:
            NodeNotFoundError: ``node-not-found`` if a version does not have the array.
            InvalidInputError: ``not-an-array`` if ``path`` is a group. ``unsupported-array`` if the number of
                dimensions differs. ``invalid-array-metadata`` if the attributes define no values.
            RefNotFoundError: ``ref-not-found`` if there is no such branch or tag.
            SnapshotNotFoundError: ``snapshot-not-found`` if there is no such snapshot.
            MissingExtraError: ``missing-extra`` for times of calendars that need cftime.
            ValueError: If none or several of the arguments of one version are given.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="create") as store:
            ...     array = zarr.create_array(store, name="t", shape=(6,), chunks=(2,), dtype="i4")
            ...     array[:] = 1
            >>> repo.create_tag("v1", "main")
            >>> with repo.transaction("main", message="correct") as store:
            ...     zarr.open_array(store, path="t")[3] = 5
            >>> difference = repo.diff_values("t", from_tag="v1", to_branch="main")
            >>> difference.changed, difference.max, difference.chunks_read
            (1, 4.0, 1)
        """
        info = self._info()
        versions = (
            snapshot_of_version(info, from_branch, from_tag, from_snapshot_id),
            snapshot_of_version(info, to_branch, to_tag, to_snapshot_id),
        )
        with snapshots_wanted():
            sessions = [self.readonly_session(snapshot_id=id_to_text(id_)) for id_ in versions]
            difference: ValueDifference = value_of(_VALUES)(*sessions, path, decode=decode)
            return difference

    def bisect(
        self,
        check: Callable[[Session], Any] | Sequence[Any],
        *,
        good: str,
        bad: str = "main",
        path: str | Sequence[str] | None = None,
    ) -> BisectReport:
        """Return the first version that fails a check, by binary search.

        The method trusts that the good version passes and the bad version fails, and that no version passes
        after one that fails. It checks at most ceil(log2(n)) of the n versions after the good one.

        Args:
            check: A function of a read-only session that returns whether the version is good: a value that
                counts as true or false, or a report with ``ok``. Or the rules of ``frazil.pipeline``, such as
                ``[Range("/t", 180, 340)]``, which ``frazil.pipeline.validate`` checks in this process.
            good: A version that passes: a branch, a tag, a snapshot id or the first characters of an id. It
                must be an ancestor of the bad version.
            bad: A version that fails. Default: the branch ``main``.
            path: The path of the node, or the paths of the nodes, that the check reads. Versions that cannot
                differ there from the version before them are not checked. Default: the paths of the rules;
                for a function, all versions can differ.

        Returns:
            The first version that fails, the version before it, and the checks.

        Raises:
            InvalidInputError: ``invalid-argument`` if the good version is not an ancestor of the bad version,
                or if no commit between them changed the paths.
            RefNotFoundError: ``ref-not-found`` if there is no such version.
            MissingExtraError: ``missing-extra`` for rules without the extra ``pipeline``.

        Examples:
            >>> import frazil, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="create") as store:
            ...     array = zarr.create_array(store, name="t", shape=(2,), dtype="i4")
            >>> repo.create_tag("good", "main")
            >>> for value in (1, 2, 3, 4):
            ...     with repo.transaction("main", message=f"write {value}") as store:
            ...         zarr.open_array(store, path="t")[0] = value
            >>> def is_small(session):
            ...     return zarr.open_array(session.store, path="t", mode="r")[0] < 3
            >>> report = repo.bisect(is_small, good="good", path="t")
            >>> report.first_bad.message, len(report.checks)
            ('write 3', 2)
        """
        ends = [self._version_named(name) for name in (good, bad)]
        paths = [path] if isinstance(path, str) else list(path or ())
        if not callable(check):
            check, paths = self._rules(check, paths)

        def passes(snapshot_id: str) -> bool:
            result = check(self.readonly_session(snapshot_id=snapshot_id))
            return bool(getattr(result, "ok", result))

        with snapshots_wanted():
            return bisect_versions(self._context, passes, good=ends[0], bad=ends[1], paths=paths)

    def _rules(
        self, rules: Sequence[Any], paths: Sequence[str]
    ) -> tuple[Callable[[Session], Any], list[str]]:
        """Return the function that checks rules, and the paths that they read."""
        if isinstance(rules, str) or not all(hasattr(rule, "path") for rule in rules):
            raise InvalidInputError(
                "check must be a function of a session, or a list of rules of frazil.pipeline, got "
                f"{rules!r:.80}",
                ErrorKind.INVALID_ARGUMENT,
            )
        with needs("frazil.Repository.bisect with rules", extra="pipeline"):
            validate, version = map(value_of, (_VALIDATE, "frazil.jobs.versions:Version"))

        def check(session: Session) -> Any:
            source = version.of(self, snapshot_id=session.snapshot_id)
            return validate(source, rules, engine="inline")

        # A rule that compares with another version can change its answer where its array does not change.
        compares = any(hasattr(rule, "against") for rule in rules)
        return check, list(paths) or ([] if compares else [rule.path for rule in rules])

    def _version_named(self, name: str) -> bytes:
        info = self._info()
        snapshot = find_snapshot(name, lambda: info)
        if snapshot is None:
            raise no_version(info, name)
        return snapshot

    diff_values_async = awaitable(diff_values)
    bisect_async = awaitable(bisect)
