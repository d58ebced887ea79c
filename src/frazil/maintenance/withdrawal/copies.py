"""The files of a source whose values an ingest has copied, so that no reference leads to them.

The ledger of a group has their names, and no positions. So a withdrawal names the files, the groups and the
versions that got them, and a person names the cells.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from fnmatch import translate
from typing import Final
from urllib.parse import unquote

import numpy as np

from frazil.arrays.array import read
from frazil.display import counted, some_of
from frazil.format.ids import id_list, id_to_text
from frazil.format.nodes import NodeTable
from frazil.repository.catalog.context import Context
from frazil.repository.paths import HIDDEN
from frazil.repository.session.session import reading
from frazil.repository.session.workspace import Workspace
from frazil.storage.checks import skip_missing
from frazil.survey.survey import side_by_side

#: The number of files of metadata that are decoded at the same time.
AT_ONCE: Final = 4
#: The beginning of a source among the data of a withdrawal in words.
SOURCE: Final = "source "
_URLS: Final = f"/{HIDDEN}/url"
#: The name of a local file in a ledger: without its folder, and with a hash.
_LOCAL: Final = re.compile(r"(.*) \([0-9a-f]{16}\)", re.DOTALL)


def copied_files(context: Context, what: Collection[str], virtual: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each group with copied files of the sources in ``what``, the data in words.

    Groups with an array in ``what`` are left out, and the files ``virtual``, which were found by references.
    """
    patterns = [each.removeprefix(SOURCE) for each in what if each.startswith(SOURCE)]
    if not patterns:
        return
    match = re.compile("|".join(map(translate, patterns))).match
    local_patterns = (unquote(each.rpartition("/")[2]) for each in patterns)
    match_local = re.compile("|".join(map(translate, local_patterns))).match
    virtual_names = {unquote(each.rpartition("/")[2]) for each in virtual}

    def is_copied(url: str) -> bool:
        if local := _LOCAL.fullmatch(url):
            return local[1] not in virtual_names and match_local(local[1]) is not None
        return url not in virtual and match(url) is not None

    arrays = [each.partition("[")[0] for each in what if not each.startswith(SOURCE)]

    def is_named(group: str) -> bool:
        return any(f"{each.rpartition('/')[0]}/" == group or group.startswith(f"{each}/") for each in arrays)

    def nodes_of(id_: bytes) -> NodeTable | None:
        with skip_missing():
            return context.assets.snapshot(id_).nodes
        return None

    table = context.catalog.full_repo_info().table
    copies: dict[str, dict[tuple[str, bytes], bytes]] = {}
    ledgers, all_urls, copied_urls = set[bytes](), set[str](), set[str]()
    ids = id_list(table.ids()[np.argsort(table.flushed_at(), kind="stable")])
    for id_, nodes in zip(ids, side_by_side(ids, nodes_of, AT_ONCE), strict=True):
        if nodes is None:
            continue
        with skip_missing():
            paths = np.array(nodes.paths_list(), np.dtypes.StringDType())
            for row in np.flatnonzero(np.strings.endswith(paths, _URLS)).tolist():
                folder = nodes.paths.text(row).removesuffix("/url")
                group = folder.removesuffix(HIDDEN)
                columns = nodes.select_nodes(nodes.below(folder))
                ledger = columns.ids.tobytes() + columns.manifest_ids().tobytes()  # equal in many versions
                if ledger in ledgers or is_named(group):
                    continue
                ledgers.add(ledger)
                session = reading(Workspace(context, id_))
                urls, prints, rejected = (
                    read(session, f"{folder}/{name}") for name in ("url", "fingerprint", "quarantined")
                )
                new = set(urls.tolist()) - all_urls
                all_urls |= new
                copied_urls |= set(filter(is_copied, new))
                if not copied_urls:
                    continue
                for file in np.flatnonzero(np.isin(urls, [*copied_urls]) & ~rejected):
                    copies.setdefault(group, {}).setdefault((str(urls[file]), prints[file].tobytes()), id_)
    for group, files in copies.items():
        names, versions = (
            dict.fromkeys(url for url, _ in files),
            map(id_to_text, dict.fromkeys(files.values())),
        )
        yield (
            f"an ingest has copied {counted(len(names), 'file')} of the source into `{group}`: "
            f"{some_of(names)}, in the versions {some_of(versions)}. Withdraw their cells by paths and "
            "labels, too"
        )
