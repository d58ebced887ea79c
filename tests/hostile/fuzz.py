"""Searches for inputs that a decoder does not survive: millions of changed files for each decoder.

    python -m tests.hostile.fuzz [--inputs N] [--seconds S] [--engine coverage|random] [DECODER ...]

The engine ``coverage`` (atheris, which uses libFuzzer) keeps an input if it reaches new lines of the decoder.
The engine ``random`` needs no package, and changes the seeds and the corpus only. Each decoder runs in a
process of its own, with limits of memory and time. An input that is not survived is stored below
``--offences``. Copy it to ``tests/hostile/corpus/DECODER`` together with the fix.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import json
import mmap
import os
import random
import resource
import sys
import time
import traceback
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from tests.hostile.decoders import Decoder
    from tests.hostile.judge import Judge

FOLDER = Path(__file__).resolve().parent
CORPUS = FOLDER / "corpus"
CACHE = FOLDER.parents[1] / ".cache" / "fuzz"
LARGEST_INPUT = 1 << 14
#: Address space of a process, in bytes. Libraries need about 2 GiB. atheris does not free changed inputs: it
#: needs up to 5 GiB for a million of them.
ADDRESS_SPACE = 9 << 30
MOST_RESIDENT_MIB = 7000
#: Modules whose lines count as coverage.
INSTRUMENTED = [
    *("frazil.format", "frazil.jobs", "frazil.readers", "frazil.changes", "frazil.repository.catalog"),
    *("frazil.pipeline.provenance", "frazil.pipeline.ingest.existing"),
    *("frazil.repository.settings", "frazil.repository.session.chunk_refs", "yaml", "json"),
]


def main(arguments: list[str] | None = None) -> int:
    """Run the decoders one after the other, and print a line for each; 1 if an input was not survived."""
    options = _options(arguments)
    fuzzer = _imported(options.engine)
    from tests.hostile.decoders import DECODERS, NATIVE

    unknown = sorted({*options.decoders} - {*DECODERS, *NATIVE})
    if unknown:
        sys.exit(f"fuzz: no decoder {', '.join(unknown)}; the decoders are {', '.join(DECODERS | NATIVE)}")
    failures = sum(_run_child(name, options, fuzzer) for name in options.decoders or DECODERS | NATIVE)
    return 1 if failures else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("decoders", nargs="*", metavar="DECODER", help="default: all")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for each decoder")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each decoder")
    parser.add_argument("--engine", choices=("coverage", "random"), default="coverage")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--offences", type=Path, default=CACHE / "offences")
    return parser.parse_args(arguments)


def _imported(engine: str) -> Any:
    """Import the decoders, for ``coverage`` with counters in their code. Return atheris, or None."""
    if engine == "random":
        return None
    try:
        import atheris  # type: ignore[import-not-found]  # only in the environment of `make fuzz-decoders`
    except ImportError:
        sys.exit(
            "fuzz: the engine `coverage` needs atheris, which has wheels for Linux on x86-64. Run "
            '`scripts/setup test fuzz` there, or use `make fuzz-decoders ARGS="--engine random"`.'
        )
    silent = redirect_stderr(io.StringIO())  # atheris prints the name of each module
    with silent, atheris.instrument_imports(include=INSTRUMENTED):
        importlib.import_module("tests.hostile.judge")
    return atheris


def _run_child(name: str, options: argparse.Namespace, fuzzer: Any) -> int:
    """Run one decoder in a process, print its summary, and return the number of different offences.

    The process is a fork of this one, because the imports with counters take ten seconds.
    """
    folder = options.offences / name
    folder.mkdir(parents=True, exist_ok=True)
    summary, log = folder / "summary.json", folder / "log"
    summary.unlink(missing_ok=True)
    sys.stdout.flush()
    with warnings.catch_warnings():  # libraries have started threads, which the decoders do not use
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        _run_one(name, options, fuzzer)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    counts: dict[str, Any] = {"inputs": 0, "seconds": 0.0, "offences": {}}
    if summary.exists():
        counts |= json.loads(summary.read_text())
    print(
        f"{name:20} {counts['inputs']:>9} inputs {counts['inputs'] / max(counts['seconds'], 0.01):>7.0f}/s "
        f"{counts.get('accepted', 0):>9} accepted, slowest {counts.get('slowest', 0.0):.2f} s, "
        f"offences {counts['offences'] or 'none'}",
        flush=True,
    )
    if status:
        print(
            f"{name}: the process ended with {status}\n{log.read_text(errors='replace')[-4000:]}", flush=True
        )
        print(f"{name}: its last input is {folder / 'last-input'}")
    return len(counts["offences"]) + bool(status)


def _run_one(name: str, options: argparse.Namespace, fuzzer: Any) -> NoReturn:
    """Run one decoder, and end this process."""
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        run = Run(name, options)
        if fuzzer is None:
            _random(run)
        else:
            _coverage(fuzzer, run)
        run.finish()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


class Run:
    """One decoder with its inputs, limits and counters."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        from tests.hostile.decoders import DECODERS, NATIVE
        from tests.hostile.judge import Judge

        self.name = name
        self.decoder: Decoder = (DECODERS | NATIVE)[name]
        self.judge: Judge = Judge(self.decoder)
        self.folder: Path = options.offences / name
        self.seed: int = options.seed
        self.inputs: int = options.inputs
        self.seconds: float = options.seconds
        self.start = time.monotonic()
        self.end = self.start + options.seconds
        last = os.open(self.folder / "last-input", os.O_RDWR | os.O_CREAT)
        os.ftruncate(last, LARGEST_INPUT + 8)
        self.last = mmap.mmap(last, LARGEST_INPUT + 8)
        self.starts = [*self.decoder.seeds(), *corpus(name)]

    @property
    def is_over(self) -> bool:
        return self.judge.inputs >= self.inputs or time.monotonic() > self.end

    def give(self, data: bytes) -> None:
        """Give one input to the decoder, and store it if it is the first one with this offence."""
        self.last[:8] = len(data).to_bytes(8, "little")
        self.last[8 : 8 + len(data)] = data[:LARGEST_INPUT]
        offence = self.judge.verdict(data)
        if offence is not None:
            self._store(data, offence.sign, offence.text)
        if self.judge.inputs % 500 == 0 or offence is not None:
            self.finish()

    def _store(self, data: bytes, sign: str, text: str) -> None:
        stem = self.folder / hashlib.sha256(sign.encode()).hexdigest()[:12]
        if not stem.exists() or len(data) < stem.stat().st_size:
            stem.write_bytes(data)
            stem.with_suffix(".txt").write_text(f"{sign}\n{text}")

    def finish(self) -> None:
        judge = self.judge
        counts = {
            "inputs": judge.inputs,
            "seconds": time.monotonic() - self.start,
            "accepted": judge.accepted,
            "slowest": judge.slowest,
            "offences": judge.offences,
        }
        (self.folder / "summary.json").write_text(json.dumps(counts))

    def changed(self, data: bytes, chance: random.Random, mutate: Any = None) -> bytes:
        """Return the input with a change of its content, in a correct package. ``mutate`` may make it."""
        form, mutation = chance.choice(self.decoder.forms)
        content = form.open(data)
        if content is None:
            return mutate(data) if mutate else mutation(data, chance)
        change = mutate if mutate and chance.random() < 0.5 else lambda old: mutation(old, chance)
        try:
            return form.close(change(content))
        except (ValueError, OverflowError):
            return mutation(data, chance)


def corpus(name: str) -> list[bytes]:
    """Return the inputs of the corpus of a decoder, in the order of their names."""
    return [file.read_bytes() for file in sorted((CORPUS / name).glob("*"))]


def _random(run: Run) -> None:
    chance = random.Random(run.seed)
    for start in run.starts:
        run.give(start)
    while not run.is_over:
        for _ in range(100):
            run.give(run.changed(chance.choice(run.starts), chance)[:LARGEST_INPUT])


def _coverage(atheris: Any, run: Run) -> None:
    folder = CACHE / "corpus" / run.name
    folder.mkdir(parents=True, exist_ok=True)
    for start in run.starts:
        (folder / hashlib.sha256(start).hexdigest()[:16]).write_bytes(start)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        changed = run.changed(data, chance, lambda old: bytes(atheris.Mutate(old, len(old) + 64)))
        return changed if len(changed) <= most else bytes(atheris.Mutate(data, most))

    flags = [
        f"-runs={run.inputs}",
        f"-max_total_time={max(1, round(run.seconds))}",
        f"-max_len={LARGEST_INPUT}",
        "-timeout=60",
        f"-rss_limit_mb={MOST_RESIDENT_MIB}",
        f"-seed={run.seed % (1 << 31) or 1}",
        f"-artifact_prefix={run.folder}/",
        str(folder),
    ]
    atheris.Setup([sys.argv[0], *flags], run.give, custom_mutator=mutated)
    try:
        atheris.Fuzz()
    finally:
        run.finish()


if __name__ == "__main__":
    sys.exit(main())
