"""The commands of ``frazil``: names, sections, and modules that are imported on demand."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from frazil.lazy_names import value_of


class Verb(NamedTuple):
    """One command: ``module:name``, by default the name ``command``. ``extra`` installs what it needs."""

    name: str
    module: str
    help: str
    extra: str = ""

    def command(self) -> Any:
        """Import the command."""
        place = self.module if ":" in self.module else f"{self.module}:command"
        return value_of(f"frazil.cli.{place}")


#: The sections of ``frazil --help``, in order.
SECTIONS: Final[dict[str, tuple[Verb, ...]]] = {
    "look": (
        Verb("log", "look.log", "show the versions, newest first"),
        Verb("show", "look.show", "show one version and what it changed"),
        Verb("diff", "look.diff", "show the differences between two versions"),
        Verb("blame", "look.blame", "show which commits wrote the chunks of an array"),
        Verb("history", "look.history", "show all commits that wrote one cell of an array"),
        Verb("bisect", "look.bisect", "find the first version that fails a check"),
        Verb("ls", "look.ls", "list the groups and arrays of a group"),
        Verb("tree", "look.tree", "show all groups and arrays as a tree"),
        Verb("info", "look.info", "describe a repository, a group or an array"),
        Verb("cat", "look.cat", "print or draw values of an array"),
        Verb("refs", "look.refs", "list the branches and tags"),
        Verb("status", "look.status", "show the state of a repository: branches, leases"),
        Verb("ops", "look.ops", "show all operations on a repository, newest first"),
        Verb("watch", "look.watch", "print new versions of a branch as they come"),
        Verb("stats", "look.stats", "count versions, files and bytes of a repository"),
        Verb("du", "look.du", "show how many bytes each array of a version takes"),
        Verb("inspect", "look.inspect", "print the content of a file of the format as JSON"),
    ),
    "change": (
        Verb("init", "change.init", "create a repository"),
        Verb("branch", "change.refs:branch", "create or delete a branch"),
        Verb("tag", "change.refs:tag", "create or delete a tag"),
        Verb("merge", "change.integration:merge", "bring the changes of a version into a branch"),
        Verb("cherry-pick", "change.integration:cherry_pick", "repeat a commit on a branch"),
        Verb("revert", "change.integration:revert", "undo a commit on a branch"),
        Verb("reset", "change.reset", "move a branch to another version"),
        Verb("undo", "change.undoing:undo", "undo the last operation on the repository"),
        Verb("redo", "change.undoing:redo", "make an undone operation again"),
        Verb("restore", "change.undoing:restore", "return to an earlier state of the repository"),
        Verb("protect", "change.protection:protect", "protect branches from mistakes"),
        Verb("unprotect", "change.protection:unprotect", "remove the protection of branches"),
        Verb("set", "change.set", "set values of an array"),
        Verb("mv", "change.mv", "move or rename a group or an array"),
        Verb("rm", "change.rm", "delete a group or an array"),
        Verb("attrs", "change.attrs", "print or set attributes"),
        Verb("config", "change.config", "print or save the configuration and the status"),
    ),
    "maintain": (
        Verb("expire", "maintain.expire", "remove old versions from the history"),
        Verb("gc", "maintain.gc", "delete files that no version needs"),
        Verb("compact", "maintain.compact", "merge small and mostly unused chunk files"),
        Verb("rewrite-manifests", "maintain.rewrite_manifests", "write the manifests of a branch again"),
        Verb("doctor", "maintain.doctor", "show what makes a repository slow, expensive or unsafe"),
        Verb("lease", "maintain.lease", "list or end the leases that hold back `gc`"),
        Verb("verify", "verify_command", "look for damaged and missing files of a repository"),
        Verb("repair", "repair_command", "repair lost, damaged and exchanged files of a repository"),
        Verb("upgrade", "maintain.upgrade", "upgrade a repository from spec version 1 to 2"),
    ),
    "move data": (
        Verb("copy", "move.replication:copy", "copy a repository, or bring a copy up to date", "pipeline"),
        Verb(
            "clone",
            "move.replication:clone",
            "make a new repository with the files of another one",
            "pipeline",
        ),
        Verb("export", "move.export", "write a version as a Zarr store or a NetCDF file", "pipeline"),
        Verb("adopt", "move.adopt", "make a version of a Zarr store, without a copy"),
        Verb("rechunk", "move.rewriting:rechunk", "store arrays in other chunks", "pipeline"),
        Verb("recompress", "move.rewriting:recompress", "store arrays with another compression", "pipeline"),
        Verb(
            "ingest",
            "ingest_command",
            "write many files into one dataset: NetCDF, HDF5, Zarr, GRIB, GeoTIFF",
            "pipeline",
        ),
        Verb("import", "import_command", "import a repository of a format older than version 1"),
    ),
    "shell": (
        Verb("completion", "completion", "print a program that completes commands in a shell"),
        Verb("man", "man_pages", "print or write manual pages"),
    ),
}
VERBS: Final = {verb.name: verb for verbs in SECTIONS.values() for verb in verbs}
