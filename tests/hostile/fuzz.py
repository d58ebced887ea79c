"""Searches for inputs that a decoder does not survive: millions of changed files for each decoder.

    python -m tests.hostile.fuzz [--inputs N] [--seconds S] [DECODER ...]

atheris, which uses libFuzzer, keeps an input if it reaches new lines of the decoder. Each decoder runs in a
process of its own, with limits of memory and time. The smallest input of each offence is stored below
``.cache/fuzz/offences``. Copy it to ``tests/hostile/corpus/DECODER`` together with the fix. `make fuzz` makes
the same changes, without a view of the coverage.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import random
import resource
import sys
import traceback
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.hostile.decoders import Decoder

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "fuzz"
LARGEST_INPUT = 1 << 14
#: Address space of a process, in bytes. Libraries need about 2 GiB. atheris does not free changed inputs: it
#: needs up to 5 GiB for a million of them.
ADDRESS_SPACE = 9 << 30
#: Modules whose lines count as coverage.
INSTRUMENTED = [
    *("frazil.format", "frazil.jobs", "frazil.readers", "frazil.changes", "frazil.repository.catalog"),
    *("frazil.pipeline.provenance", "frazil.pipeline.ingest.existing"),
    *("frazil.repository.settings", "frazil.repository.session.chunk_refs", "yaml", "json"),
]


def main() -> int:
    """Run the decoders one after the other, and print a line for each; 1 if an input was not survived."""
    try:
        import atheris  # type: ignore[import-untyped]  # only in the environment of `make fuzz-decoders`
    except ImportError:
        sys.exit("fuzz: atheris is missing. `scripts/setup test fuzz` installs it on Linux with x86-64")
    silent = redirect_stderr(io.StringIO())  # atheris prints the name of each module
    with silent, atheris.instrument_imports(include=INSTRUMENTED):
        from tests.hostile.decoders import DECODERS, NATIVE, starts
    every = DECODERS | NATIVE
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("decoders", nargs="*", metavar="DECODER", choices=[[], *every], help="default: all")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each decoder")
    parser.add_argument("--seconds", type=int, default=600, help="for each decoder")
    options = parser.parse_args()
    failures = 0
    for name in options.decoders or every:
        offences, corpus = CACHE / "offences" / name, CACHE / "corpus" / name
        for folder in (offences, corpus):
            folder.mkdir(parents=True, exist_ok=True)
        for start in starts(name):
            (corpus / hashlib.sha256(start).hexdigest()[:16]).write_bytes(start)
        flags = [f"-runs={options.inputs}", f"-max_total_time={options.seconds}", f"-max_len={LARGEST_INPUT}"]
        flags += ["-timeout=60", "-rss_limit_mb=7000", f"-artifact_prefix={offences}/", str(corpus)]
        with warnings.catch_warnings():  # libraries have started threads, which the decoders do not use
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()  # the imports with counters take ten seconds
        if child == 0:
            _search(atheris, every[name], offences, flags)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = [file.read_text().partition("\n")[0] for file in sorted(offences.glob("*.txt"))]
        print(f"{name:20} ended with {status}, offences: {', '.join(found) or 'none'}", flush=True)
        failures += bool(found or status)
    return 1 if failures else 0


def _search(atheris: Any, decoder: Decoder, offences: Path, flags: list[str]) -> None:
    """Give one decoder changed inputs, and end this process."""
    from tests.hostile.decoders import survives

    def give(data: bytes) -> None:
        try:
            survives(decoder, data)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            last = [frame for frame in frames if "/frazil/" in frame.filename] or frames
            sign = f"{type(error).__name__} at {last[-1].filename.rpartition('/frazil/')[2]}:{last[-1].name}"
            stem = offences / hashlib.sha256(sign.encode()).hexdigest()[:12]
            if not stem.exists() or len(data) < stem.stat().st_size:
                stem.write_bytes(data)
                stem.with_suffix(".txt").write_text(f"{sign}\n{''.join(traceback.format_exception(error))}")

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        form, mutation = chance.choice(decoder.forms)
        content = form.open(data)
        if content is None:
            return bytes(atheris.Mutate(data, most))
        is_known = chance.random() < 0.5
        try:
            changed = mutation(content, chance) if is_known else atheris.Mutate(content, len(content) + 64)
            closed = form.close(bytes(changed))
        except (ValueError, OverflowError):
            closed = mutation(data, chance)
        return closed if len(closed) <= most else bytes(atheris.Mutate(data, most))

    try:
        log = os.open(offences / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        atheris.Setup([sys.argv[0], *flags], give, custom_mutator=mutated)
        atheris.Fuzz()
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
