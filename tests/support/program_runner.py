"""Run Python programs without the start of an interpreter for each: one process has the packages imported.

`Forks` runs each program in a fork of that process. Only packages of other projects are imported before the
fork: a program that forgets an import of Frazil still fails. `OneProcess` runs programs one after the other
in one process, because a JVM cannot be forked: all programs with Spark share one JVM.

A program sees what ``python -W error PROGRAM ARGUMENTS`` shows it: its own ``__main__``, arguments, folder
and environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

#: Options of Python: warnings are errors, but for one of another package. Later options win.
WARNINGS: Final = (
    *("-W", "error"),
    # flox, which xarray's groupby imports where it is installed, with numpy 2.5
    *("-W", "ignore:The 'generic' unit for NumPy:DeprecationWarning"),
)
_PACKAGES: Final = ("numpy", "pandas", "pyarrow", "xarray", "zarr", "zarr.storage", "h5netcdf")


@dataclass(frozen=True)
class Done:
    """The exit code of a program and the text that it printed."""

    returncode: int
    stdout: str
    stderr: str


@dataclass
class Programs:
    """Runs programs; the process starts with the first one."""

    forks: bool
    _server: subprocess.Popen[str] | None = field(default=None, init=False)

    def run(
        self, program: Path, *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Done:
        """Run a program to its end. The files that it writes into its current folder go to ``cwd``."""
        if self._server is None:
            self._server = self._start()
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        with tempfile.TemporaryDirectory(prefix="frazil-program-") as place:
            request = {
                "program": str(program),
                "arguments": arguments,
                "cwd": str(cwd or place),
                "env": dict(os.environ if env is None else env),
                "stdout": f"{place}/.stdout",
                "stderr": f"{place}/.stderr",
            }
            try:
                print(json.dumps(request), file=server.stdin, flush=True)
                answer = server.stdout.readline()
            except BaseException:  # such as the time-out of the test
                self.close()
                raise
            texts = [Path(place, name).read_text() for name in (".stdout", ".stderr")]
        if not answer:
            self.close()
            raise RuntimeError("the process that runs programs has ended:\n" + "".join(texts))
        return Done(int(answer), *texts)

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, *WARNINGS, "-m", __name__, "forks" if self.forks else "one-process"]
        return subprocess.Popen(
            command,
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def close(self) -> None:
        """End the process and those that it has started."""
        server, self._server = self._server, None
        if server is not None:
            os.killpg(server.pid, signal.SIGKILL)
            server.communicate()


FORKS: Final = Programs(forks=True)
ONE_PROCESS: Final = Programs(forks=False)


# In the process


def _requests() -> Iterator[dict[str, Any]]:
    # A program must neither read the next request nor write the answer.
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    received = b""
    while block := os.read(requests, 1 << 16):
        received += block
        while b"\n" in received:
            line, _, received = received.partition(b"\n")
            request = json.loads(line)
            yield request
            os.write(answers, f"{request['returncode']}\n".encode())


def _become(request: Mapping[str, Any]) -> None:
    """Take the output, the environment and the arguments of a program."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    _set_environment(request["env"])
    sys.argv = [request["program"], *request["arguments"]]
    sys.path[0] = str(Path(request["program"]).parent)


def _set_environment(values: Mapping[str, str]) -> None:
    for name in os.environ.keys() - values.keys():
        del os.environ[name]
    os.environ.update(values)


def _run(program: str) -> int:
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _fork_each(sequence: Iterator[dict[str, Any]]) -> None:
    # Environments with the lowest versions have few extras.
    for name in filter(importlib.util.find_spec, _PACKAGES):
        __import__(name)
    for request in sequence:
        child = os.fork()
        if child == 0:
            _become(request)
            os.chdir(request["cwd"])
            sys.exit(_run(request["program"]))
        _, status = os.waitpid(child, 0)
        request["returncode"] = os.waitstatus_to_exitcode(status)


def _one_after_the_other(sequence: Iterator[dict[str, Any]]) -> None:
    """The JVM stays in the folder where it started: programs run there, and their files are moved.

    Its Python workers have the ``sys.path`` of the start of the JVM, with the modules of the examples.
    """
    sys.path.append(str(Path(__file__).parents[2] / "examples"))
    with tempfile.TemporaryDirectory(prefix="frazil-programs-") as folder:
        os.chdir(folder)
        for request in sequence:
            _become(request)
            request["returncode"] = _run(request["program"])
            sys.stdout.flush()
            sys.stderr.flush()
            os.chdir(folder)
            for name in os.listdir(folder):
                shutil.move(name, Path(request["cwd"], name))


def main(arguments: Sequence[str]) -> None:
    sequence = _requests()
    if "forks" in arguments:
        _fork_each(sequence)
    else:
        _one_after_the_other(sequence)


if __name__ == "__main__":
    main(sys.argv[1:])
