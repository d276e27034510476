"""Console sessions of the documentation: read from a page, run in one shell, compared, written back.

A session is what stands in a page's blocks of the language ``console``: ``$ `` before a command, ``> `` before what
continues it, the output below. The commands of a page run in order in one shell, on a host of their own: namespaces
with a libvirtd, and empty directories of libvirt, mdevctl and vgpumgr. The terminal has 100 columns.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import short

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 100
TIMEOUT_S = 120.0
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: what differs from run to run, with what both sides have in its place
VARIABLE = (
    (r"\b(GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", r"\1UUID"),
    # a beginning of one: the id of an attachment or operation, a boot
    (r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b", "ID"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z|\+\d\d:\d\d)?", "TIME"),
    (r"\b\d+(\.\d+)? ?(ms|s|seconds)\b", "DURATION"),
    (r"\b(process|pid) \d+\b", r"\1 PID"),
    (r"(?<=[\w-]) \(\d+\)", " (PID)"),
    # times of metrics, in seconds
    (r"(_seconds(?:_\w+)?(?:\{.*?\})?) \d[\d.e+-]*$", r"\1 SECONDS"),
    (r"(hostname=)\"[^\"]*\"", r'\1"HOST"'),
    # the width of a column follows what is in it
    (r" +", " "),
    (r"[-─]{3,}", "---"),
)  # fmt: skip
#: a shell without a terminal says more than one at a prompt
KILLED = re.compile(r"^\S+: line \d+: +\d+ (Killed|Terminated)\b.*$", re.MULTILINE)
PRIVATE = (
    "run/libvirt", "var/lib/libvirt", "var/log/libvirt", "var/cache/libvirt", "etc/libvirt", "etc/mdevctl.d",
    "run/vgpumgr", "var/lib/vgpumgr", "etc/vgpumgr",
)  # fmt: skip
INSIDE = r"""
set -eu
hostname gpu1
for dir in $PRIVATE; do
    mkdir -p "/$dir"
    mount --bind "$SCRATCH/$dir" "/$dir"
done
libvirtd -d -p "$SCRATCH/libvirtd.pid" >"$SCRATCH/libvirtd.log" 2>&1
cd "$SCRATCH/home"
unset SCRATCH PRIVATE
exec bash --norc --noprofile "$1"
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a page, and the output that the page shows."""

    command: str
    output: str
    line: int


def read_steps(text: str) -> list[Step]:
    """The commands of a page, in order."""
    return [step for block in BLOCK.finditer(text) for step in _read_block(text, block)]


def _read_block(text: str, block: re.Match[str]) -> Iterator[Step]:
    first = text.count("\n", 0, block.start(1)) + 1
    lines = block[1].splitlines()
    if lines and not lines[0].startswith("$ "):
        raise ValueError(f"line {first}: a console block begins with a command")
    at = 0
    while at < len(lines):
        start = at
        command = [lines[at][2:]]
        at += 1
        while at < len(lines) and (lines[at].startswith("> ") or lines[at] == ">"):
            command.append(lines[at][2:])
            at += 1
        output = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        yield Step("\n".join(command), "\n".join(lines[output:at]).strip("\n"), first + start)


def write_outputs(text: str, outputs: Sequence[str]) -> str:
    """The page with these outputs; the same page where all mean the same. UUIDs of one run belong together."""
    if not list_mistakes(text, outputs):
        return text
    left = iter(outputs)

    def write(block: re.Match[str]) -> str:
        lines = []
        for step in _read_block(text, block):
            head, *rest = step.command.split("\n")
            lines += [f"$ {head}", *(f"> {line}".rstrip() for line in rest)]
            lines += next(left).splitlines()
        return "```console\n" + "".join(f"{line}\n" for line in lines) + "```"

    return BLOCK.sub(write, text)


def normalise(text: str) -> list[str]:
    """The lines of an output without what differs from run to run (``VARIABLE``)."""
    lines = text.strip("\n").splitlines()
    for pattern, value in VARIABLE:
        lines = [re.sub(pattern, value, line) for line in lines]
    return [line.rstrip() for line in lines]


def means_the_same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed."""
    return normalise(shown) == normalise(printed)


def list_mistakes(text: str, outputs: Sequence[str]) -> list[str]:
    """Each step whose output is not what the page shows."""
    steps = read_steps(text)
    if len(steps) != len(outputs):
        raise ValueError(f"{len(steps)} commands and {len(outputs)} outputs")
    return [
        f"line {step.line}: $ {step.command}\n--- the page\n{step.output}\n+++ printed\n{printed}"
        for step, printed in zip(steps, outputs, strict=True)
        if not means_the_same(step.output, printed)
    ]


def see(data: bytes) -> str:
    """What a terminal shows after these bytes: a carriage return writes over the line, no colours."""
    text = data.decode(errors="replace").replace("\r\n", "\n")
    text = re.sub(r"\x1b\[[0-9;?]*[A-JL-Za-ln-z]|\x1b\[[0-9;]*m", "", text)
    lines = [re.split(r"\r(?:\x1b\[K)?", line)[-1] for line in text.split("\n")]
    lines = [line.rpartition("\x1b[K")[2].rstrip() for line in lines]
    return KILLED.sub(r"\1", "\n".join(lines)).strip("\n")


class Shell:
    """A shell whose commands are typed one by one; see ``host_shell``."""

    def __init__(self, script: int, terminal: int) -> None:
        self._script = script
        self._terminal = terminal
        self._count = 0

    def run(self, command: str, timeout_s: float = TIMEOUT_S) -> str:
        """What the terminal shows of a command. Raises TimeoutError, EOFError."""
        self._count += 1
        mark = f"\x02{self._count}\x03"
        # the status of the command stays what $? says
        end = f"s=$?; printf '\\002{self._count}\\003'; (exit $s)"
        os.write(self._script, f"{command}\n{end}\n".encode())
        seen = b""
        deadline = time.monotonic() + timeout_s
        while not seen.endswith(mark.encode()):
            ready, _, _ = select.select([self._terminal], [], [], deadline - time.monotonic())
            if not ready:
                raise TimeoutError(f"{command!r} has not ended:\n{see(seen)}")
            try:
                seen += os.read(self._terminal, 65536)
            except OSError as error:
                raise EOFError(f"the shell ended in {command!r}:\n{see(seen)}") from error
        return see(seen.removesuffix(mark.encode()))


@contextmanager
def host_shell() -> Iterator[Shell]:
    """A root shell on a host of its own. Needs root; all that was started ends with it."""
    scratch = Path(tempfile.mkdtemp(prefix="vgdoc.", dir=short()))
    scratch.chmod(0o755)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    reader, writer = os.pipe()
    process = None
    try:
        _furnish(scratch)
        words = [
            "setpriv", "--pdeathsig", "KILL",
            "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
            "bash", "-c", INSIDE, "inside", f"/dev/fd/{reader}",
        ]  # fmt: skip
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, pass_fds=[reader],
            env=_environment(scratch), start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        os.close(reader)
        shell = Shell(writer, master)
        shell.run("until virsh -q uri; do sleep 0.1; done >/dev/null 2>&1")
        yield shell
    finally:
        os.close(writer)
        if process is not None:
            process.kill()
            process.wait()
        os.close(master)
        _remove(scratch)


def _furnish(scratch: Path) -> None:
    """Empty directories, a libvirtd that keeps QEMU as root, and the command ``vgpumgr``."""
    for directory in (*PRIVATE, "bin", "home"):
        (scratch / directory).mkdir(parents=True)
    (scratch / "etc/libvirt/libvirtd.conf").write_text('auth_unix_rw = "none"\n')
    (scratch / "etc/libvirt/qemu.conf").write_text(
        'user = "root"\ngroup = "root"\nsecurity_driver = "none"\nremember_owner = 0\n'
        'stdio_handler = "file"\ncgroup_controllers = [ ]\nnamespaces = [ ]\n'
    )
    program = scratch / "bin/vgpumgr"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m vgpumgr "$@"\n')
    program.chmod(0o755)


def _environment(scratch: Path) -> dict[str, str]:
    return {
        "PATH": f"{scratch}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(ROOT), "HOME": f"{scratch}/home",
        "LANG": "C.UTF-8", "TERM": "dumb", "SCRATCH": str(scratch), "PRIVATE": " ".join(PRIVATE),
    }  # fmt: skip


def _remove(scratch: Path) -> None:
    """The processes of the namespace may still be about to end."""
    for _ in range(50):
        with suppress(OSError):
            shutil.rmtree(scratch)
            return
        time.sleep(0.1)


def run_page(text: str, report: Callable[[Step, float], None] | None = None) -> list[str]:
    """The outputs of all commands of a page, on a new host."""
    outputs = []
    with host_shell() as shell:
        for step in read_steps(text):
            began = time.monotonic()
            outputs.append(shell.run(step.command))
            if report is not None:
                report(step, time.monotonic() - began)
    return outputs


def main(pages: list[str]) -> int:
    """``python -m tests.support.console PAGE...``: exit status 1 where a page does not show what its commands print."""
    failed = 0
    for page in pages:
        text, began = Path(page).read_text(), time.monotonic()
        mistakes = list_mistakes(text, run_page(text))
        failed += len(mistakes)
        print(*mistakes, sep="\n\n", end="\n" if mistakes else "")
        steps = len(read_steps(text))
        print(f"{page}: {steps} commands, {time.monotonic() - began:.0f} s, {len(mistakes)} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
