"""The methods of ``Repository`` for refs, protections, configuration, metadata, status and features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.repo_info import Availability
from frazil.handle.opening import saved_config
from frazil.handle.sessions import RepositoryBase
from frazil.history.undo import OWN_PREFIX, UNDO
from frazil.remedies import call
from frazil.repository.asynchronous import awaitable
from frazil.repository.catalog import presentation, repo_changes
from frazil.repository.catalog.history_records import with_branch
from frazil.repository.catalog.protection import PROTECTION, BranchProtection, read_protections
from frazil.repository.catalog.repo_changes import branch_tip, find_snapshot, resolve_id
from frazil.repository.catalog.repo_update import OPS_START, RepoChange
from frazil.repository.catalog.version_info import FeatureFlag, RepoStatus
from frazil.repository.clock import now_us
from frazil.repository.settings.config import FLAGS, flag_named, setting_of
from frazil.repository.settings.config_document import document_to_save

#: A pattern with one of these also protects branches that are created later.
_WILDCARDS: Final = frozenset("*?[")


class Administration(RepositoryBase):
    """Methods of ``Repository`` for refs, protections, configuration, metadata, status and features."""

    def list_branches(self) -> set[str]:
        """Return the names of all branches.

        Returns:
            The names. ``main`` is always one of them.
        """
        return set(self._info().branches)

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Create a branch on a snapshot.

        Args:
            branch: The name of the new branch. It must not be empty.
            snapshot_id: The id of a snapshot, the first characters of an id (4 or more, if only one id begins
                with them), or the name of a branch or tag.

        Raises:
            AlreadyExistsError: ``branch-already-exists`` if the branch exists.
            SnapshotNotFoundError: ``snapshot-not-found`` if the repository does not have the snapshot.
            InvalidInputError: ``invalid-snapshot-id`` if ``snapshot_id`` is not an id and not a name, or can
                mean several snapshots. ``invalid-ref-name`` if the name of the branch is not allowed.
        """
        self._set_branch(branch, lambda id_: repo_changes.create_branch(branch, id_), snapshot_id)

    def lookup_branch(self, branch: str) -> str:
        """Return the id of the snapshot at the tip of a branch.

        Args:
            branch: The name of the branch.

        Returns:
            The id of the snapshot.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such branch.
        """
        return id_to_text(repo_changes.branch_tip(self._info(), branch))

    def reset_branch(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Move a branch to another snapshot.

        Args:
            branch: The name of the branch.
            snapshot_id: The new tip. See ``create_branch``.
            from_snapshot_id: The id of the expected tip. If the branch is on another snapshot, it is not
                moved. Default: the branch is moved from any snapshot.

        Raises:
            ConflictError: ``branch-update-conflict`` if the branch is not on ``from_snapshot_id``.
            RefNotFoundError: If there is no such branch.
            SnapshotNotFoundError: See ``create_branch``.
            InvalidInputError: See ``create_branch``.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.create_branch("dev", "main")
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> repo.reset_branch("dev", "main", from_snapshot_id=repo.lookup_branch("dev"))
            >>> repo.lookup_snapshot(repo.lookup_branch("dev")).message
            'a group'
        """
        expected = None if from_snapshot_id is None else resolve_id(from_snapshot_id, self._info)
        self._set_branch(branch, lambda id_: repo_changes.reset_branch(branch, id_, expected), snapshot_id)

    def delete_branch(self, branch: str) -> None:
        """Delete a branch.

        Its snapshots stay until an expiration or a garbage collection removes them.

        Args:
            branch: The name of the branch.

        Raises:
            RefNotFoundError: If there is no such branch.
            SessionStateError: ``cannot-delete-main`` if ``branch`` is ``main``.
        """
        self._update(repo_changes.delete_branch(branch))

    def list_tags(self) -> set[str]:
        """Return the names of all tags, without deleted tags.

        Returns:
            The names.
        """
        return set(self._info().tags)

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """Create a tag, a permanent name for a snapshot.

        A tag cannot be moved. After it is deleted, its name cannot be used again.

        Args:
            tag: The name of the new tag. It must not be empty.
            snapshot_id: See ``create_branch``.

        Raises:
            AlreadyExistsError: ``tag-already-exists`` if the tag exists. ``tag-previously-deleted`` if a tag
                of this name was deleted (in spec version 1: ``tag-already-exists``).
            SnapshotNotFoundError: See ``create_branch``.
            InvalidInputError: See ``create_branch``.
            SessionStateError: ``feature-flag-disabled`` if the feature ``create_tag`` is off.
        """
        self._update(repo_changes.create_tag(tag, self._resolve(snapshot_id)))

    def lookup_tag(self, tag: str) -> str:
        """Return the id of the snapshot that a tag names.

        Args:
            tag: The name of the tag.

        Returns:
            The id of the snapshot.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such tag, or if it was deleted.
        """
        return id_to_text(repo_changes.tag_target(self._info(), tag))

    def delete_tag(self, tag: str) -> None:
        """Delete a tag; its name cannot be used again.

        Args:
            tag: The name of the tag.

        Raises:
            RefNotFoundError: ``ref-not-found`` if there is no such tag.
            SessionStateError: ``feature-flag-disabled`` if the feature ``delete_tag`` is off.
        """
        self._update(repo_changes.delete_tag(tag))

    def _set_branch(self, branch: str, change: Callable[[bytes], RepoChange], snapshot_id: str) -> None:
        """Move a branch to a snapshot, with the records that the history of the branch needs."""
        id_ = self._resolve(snapshot_id)
        update = change(id_)
        if self._context.spec_version > 1:
            update = repo_changes.with_metadata(update, partial(with_branch, branch=branch), id_)
        self._update(update)

    def _resolve(self, text: str) -> bytes:
        """Return the snapshot that an id, the first characters of an id, or the name of a ref means."""
        snapshot = find_snapshot(text, self._info)
        return resolve_id(text, self._info) if snapshot is None else snapshot

    list_branches_async: Final = awaitable(list_branches)
    create_branch_async: Final = awaitable(create_branch)
    lookup_branch_async: Final = awaitable(lookup_branch)
    reset_branch_async: Final = awaitable(reset_branch)
    delete_branch_async: Final = awaitable(delete_branch)
    list_tags_async: Final = awaitable(list_tags)
    create_tag_async: Final = awaitable(create_tag)
    lookup_tag_async: Final = awaitable(lookup_tag)
    delete_tag_async: Final = awaitable(delete_tag)

    def protect_branch(
        self,
        pattern: str,
        *,
        principals: Sequence[str] = (),
        fast_forward_only: bool = True,
        rules: Sequence[Any] = (),
    ) -> BranchProtection:
        """Protect all branches whose names match a pattern, or replace their protection.

        Every update of the repository through Frazil obeys the rules: commits, amendments, merges, resets,
        deletions, squashes and undo. A protected branch cannot be deleted. An update that breaks a rule
        raises ``SessionStateError`` (``branch-protected``) and changes nothing.

        The rules prevent mistakes, and are no access control. Other implementations ignore them;
        ``doctor`` shows what they did.

        Args:
            pattern: The name of a branch, or a pattern with ``*``, ``?`` and ``[...]``.
            principals: The names of those who may move the branches, and change the protection. A handle acts
                for the ``principal`` of its ``Attribution``, else for the user of its process. Default:
                everybody.
            fast_forward_only: Whether a branch only moves to versions that contain its tip.
            rules: The rules of ``frazil.pipeline`` that must hold in each new version. Only
                ``frazil.pipeline.write_audit_publish`` can move the branch then. Default: none.

        Returns:
            The protection.

        Raises:
            InvalidInputError: ``invalid-ref-name`` for an empty pattern.
            RefNotFoundError: ``ref-not-found`` for a name without wildcards that is no branch.
            SessionStateError: ``branch-protected`` if the pattern has a protection that others may change.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> protection = repo.protect_branch("main")
            >>> repo.reset_branch("main", "1CECHNKREP0F1RSTCMT0")
            Traceback (most recent call last):
            ...
            frazil.errors.SessionStateError: the branch `main` cannot move from ...
        """
        self._context.require_version_2()
        if not pattern:
            raise InvalidInputError(
                "the pattern must be a name or `*`, got an empty text", ErrorKind.INVALID_REF_NAME
            )
        if _WILDCARDS.isdisjoint(pattern):
            branch_tip(self._info(), pattern)  # a mistake in a name protects nothing
        protection = BranchProtection(
            pattern=pattern,
            principals=tuple(principals),
            fast_forward_only=fast_forward_only,
            rules=tuple(rule if isinstance(rule, Mapping) else rule.as_dict() for rule in rules),
            since=now_us(),
        )

        def add(metadata: dict[str, Any]) -> dict[str, Any]:
            others = {each.pattern: each.document() for each in read_protections(metadata)}
            return {**metadata, PROTECTION: {**others, pattern: protection.document()}}

        self._update(repo_changes.set_metadata(add))
        return protection

    def unprotect_branch(self, pattern: str) -> None:
        """Remove the protection of a pattern.

        Args:
            pattern: The pattern, exactly as ``protect_branch`` got it.

        Raises:
            InvalidInputError: ``invalid-argument`` if the pattern has no protection.
            SessionStateError: ``branch-protected`` if only others may change it.
        """
        self._context.require_version_2()

        def remove(metadata: dict[str, Any]) -> dict[str, Any]:
            others = {each.pattern: each.document() for each in read_protections(metadata)}
            if others.pop(pattern, None) is None:
                raise InvalidInputError(f"no protection has the pattern `{pattern}`").with_remedy(
                    "`{}` lists them", call("branch_protections")
                )
            left = {name: value for name, value in metadata.items() if name != PROTECTION}
            return {**left, PROTECTION: others} if others else left

        self._update(repo_changes.set_metadata(remove))

    def branch_protections(self) -> list[BranchProtection]:
        """Return the protections of branches, by pattern.

        Returns:
            The protections.

        Raises:
            FormatError: ``unsupported-spec-version`` if the repository has spec version 1. Another kind if
                another program has damaged the rules.
        """
        return read_protections(self._info_v2().metadata)

    def save_config(self, *, store_secrets: bool = False) -> None:
        """Save the configuration of this handle in the repository.

        Handles that are opened later use the saved configuration, unless their caller overrides it.

        Args:
            store_secrets: Whether to save options and headers of virtual chunk containers that may hold a
                secret. Everybody who can read the repository can read them.

        Raises:
            InvalidInputError: ``secret-in-config`` if the configuration may hold a secret that is not saved
                already, without ``store_secrets``.

        Examples:
            >>> storage = frazil.in_memory_storage()
            >>> repo = frazil.Repository.create(storage)
            >>> repo.reconfigure(frazil.RepositoryConfig(inline_chunk_threshold_bytes=1024))
            >>> repo.save_config()
            >>> frazil.Repository.open(storage).config.inline_chunk_threshold_bytes
            1024
        """
        document = document_to_save(
            self._context.config, store_secrets, partial(saved_config, self._context.storage)
        )
        self._update(repo_changes.save_config(document))

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the repository as a whole.

        The items in which Frazil records undos and the start of the ops log are left out.

        Returns:
            A dictionary of values that JSON can hold.
        """
        return _shown(self._info_v2().metadata)

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the metadata of the repository.

        The items of Frazil stay, unless ``metadata`` has other ones: their names begin with ``frazil.``. They
        are the protections of branches, and records of undos, jobs, streaming queries and copies.

        Args:
            metadata: The new metadata: a dictionary that JSON can hold.

        Raises:
            InvalidMetadataError: If JSON cannot hold the metadata.
        """

        def replace_items(current: dict[str, Any]) -> dict[str, Any]:
            own = {name: value for name, value in current.items() if name.startswith(OWN_PREFIX)}
            return {**own, **metadata}

        self._update(repo_changes.set_metadata(replace_items))

    def update_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Add items to the metadata of the repository, and replace those of the same name.

        Args:
            metadata: The items: a dictionary that JSON can hold.

        Returns:
            The whole metadata after the update.

        Raises:
            InvalidMetadataError: If JSON cannot hold the metadata.
        """
        info = self._update(repo_changes.set_metadata(lambda current: {**current, **metadata}))
        return _shown(info.metadata)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the repository as a whole, as ``get_metadata`` returns them."""
        return self.get_metadata()

    def get_status(self) -> RepoStatus:
        """Return whether the repository accepts changes, since when, and why not.

        Returns:
            The status.
        """
        return presentation.repo_status(self._info_v2().status)

    @property
    def status(self) -> RepoStatus:
        """Whether the repository accepts changes, as ``get_status`` returns it."""
        return self.get_status()

    def set_status(self, status: RepoStatus) -> None:
        """Make the repository read-only, or writable again.

        A read-only repository can be read, and this method can make it writable again. All other changes
        raise ``ReadOnlyError`` (``read-only-repository``).

        Args:
            status: The new status. The repository records the time of the change, and ignores ``set_at``.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> closed = frazil.RepoStatus(
            ...     frazil.RepoAvailability.read_only, limited_availability_reason="archived"
            ... )
            >>> repo.set_status(closed)
            >>> repo.status.limited_availability_reason
            'archived'
        """
        availability = Availability[status.availability.name.upper()]
        change = repo_changes.set_status(availability, status.limited_availability_reason)
        self._update(change)

    def feature_flags(self) -> list[FeatureFlag]:
        """Return all features that can be turned off.

        Returns:
            The features, with their defaults and settings.
        """
        info = self._info_v2()
        return [
            FeatureFlag(flag.id, flag.name, flag.default_enabled, setting_of(info, flag)) for flag in FLAGS
        ]

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the features that are on, by a setting of the repository or by default.

        Returns:
            The features, with their defaults and settings.
        """
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the features that are off, by a setting of the repository or by default.

        Returns:
            The features, with their defaults and settings.
        """
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Turn a feature on or off, or reset it to its default.

        Args:
            name: The feature: ``create_tag``, ``delete_tag`` or ``move_node``.
            setting: True for on, False for off, None for the default.

        Raises:
            InvalidInputError: ``invalid-feature-flag`` if there is no feature of this name.
        """
        self._context.require_version_2()
        self._update(repo_changes.set_flag(flag_named(name), None if setting is None else bool(setting)))

    def default_commit_metadata(self) -> dict[str, Any]:
        """Return the metadata that all commits of new sessions of this handle get.

        Returns:
            A copy of the metadata from ``set_default_commit_metadata``.
        """
        return dict(self._default_metadata)

    def set_default_commit_metadata(self, metadata: dict[str, Any]) -> None:
        """Set the metadata that all commits get, in sessions that this handle opens from now on.

        The metadata of a commit override items of the same name.

        Args:
            metadata: The metadata: a dictionary that JSON can hold.

        Examples:
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> repo.set_default_commit_metadata({"author": "Ada"})
            >>> with repo.transaction("main", message="a group") as store:
            ...     group = zarr.create_group(store, path="g")
            >>> repo.lookup_snapshot(repo.lookup_branch("main")).metadata
            {'author': 'Ada'}
        """
        self._default_metadata = dict(metadata)

    save_config_async: Final = awaitable(save_config)
    get_metadata_async: Final = awaitable(get_metadata)
    set_metadata_async: Final = awaitable(set_metadata)
    update_metadata_async: Final = awaitable(update_metadata)
    get_status_async: Final = awaitable(get_status)
    set_status_async: Final = awaitable(set_status)
    feature_flags_async: Final = awaitable(feature_flags)
    enabled_feature_flags_async: Final = awaitable(enabled_feature_flags)
    disabled_feature_flags_async: Final = awaitable(disabled_feature_flags)
    set_feature_flag_async: Final = awaitable(set_feature_flag)


def _shown(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata without the items that only Frazil uses."""
    return {name: value for name, value in metadata.items() if name not in (UNDO, OPS_START)}
