"""The state of a host for those who help its administrator: an archive without secrets.

Everything is asked by programs of their own, each with a deadline: a daemon that does not answer, a stuck driver or a
damaged state costs its own part only. Nothing here opens the state for writing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from vgpumgr import __version__
from vgpumgr.host.machine import LIB_DIR, Machine
from vgpumgr.model.frozen import dataclass

DIRECTORY = "vgpumgr-support"
_TIMEOUT_S = 20.0
_AT_ONCE = 8
#: of what is longer, the end is kept: it is the newest part of a log
_MAX_BYTES = 4 << 20
_REMOVED = "[removed]"
_OWN = (
    "version", "doctor -o json", "status -o json", "diff -o json", "config show -o json", "gpu list -o json",
    "mig list -o json", "mdev list -o json", "passthrough list -o json", "vf list -o json", "vm list -o json",
    "virtio list -o json", "op list -o json", "audit -o json", "metrics",
)  # fmt: skip
#: of the host, which a simulated machine is none
_PROGRAMS = {
    "uname": "uname -a",
    "lspci": "lspci -nnk",
    "lsmod": "lsmod",
    "nvidia-smi": "nvidia-smi -q",
    "nvidia-smi-vgpu": "nvidia-smi vgpu -q",
    "virsh-version": "virsh version",
    "virsh-list": "virsh list --all",
    "units": "systemctl status --no-pager vgpumgr.service vgpumgr.socket vgpumgr-restore.service"
    " vgpumgr-passthrough.service",
    "journal": "journalctl --no-pager -o short-iso -n 5000 -u vgpumgr.service -u vgpumgr-restore.service"
    " -u vgpumgr-passthrough.service",
    "journal-kernel": "journalctl --no-pager -o short-iso -n 2000 -k",
    "packages-deb": "dpkg-query -W *vgpumgr* libvirt* qemu* *nvidia* mdevctl linux-image*",
    "packages-rpm": "rpm -qa *vgpumgr* libvirt* qemu* *nvidia* mdevctl kernel*",
}
_FILES = ("/proc/cmdline", "/proc/driver/nvidia/version", "/sys/module/nvidia/version")
_SECRET = (
    r"[\w.-]*(?:pass(?:word|wd|phrase|code)|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|credential|authorization|cookie)[\w.-]*"
)
_SERIAL = r"(?:[\w.-]*[_.-])?serial(?:[ _-]?(?:number|no))?"
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'"
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # a header's value is the rest of its line
        (
            r"((?:proxy-)?authorization|(?:set-)?cookie)(\s*:\s*)(?!\[)[^\r\n\"']+",
            rf"\1\2{_REMOVED}",
        ),
        (r"\b(bearer|basic) +[\w.~+/=-]{6,}", rf"\1 {_REMOVED}"),
        (rf"(\b{_SECRET}[\"']?\s*=\s*)({_QUOTED}|[^\s,;&<>]+)", rf"\1{_REMOVED}"),
        (rf"(\b{_SECRET}[\"']?\s*:\s*)({_QUOTED}|[^\r\n]+)", rf"\1{_REMOVED}"),
        (rf"(<{_SECRET}\b[^>]*>)[^<]+", rf"\1{_REMOVED}"),
        (rf"(--?{_SECRET}\s+)({_QUOTED}|[^\s-]\S*)", rf"\1{_REMOVED}"),
        (r"(\w[\w+.-]*://[^\s/:@]*):[^\s/@]+@", rf"\1:{_REMOVED}@"),
        (r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*", _REMOVED),
        (r"\b(?:gh[opsu]_|glpat-|xox[abp]-|AKIA|sk-)[\w-]{10,}", _REMOVED),
    )
)
#: what has several lines
_LONG = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), replacement)
    for pattern, replacement in (
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", _REMOVED),
        (rf"(\b{_SECRET}\s*=\s*)(\"\"\"|''').*?(?:\2|\Z)", rf"\1{_REMOVED}"),
        (rf"(\b{_SECRET}\s*=\s*)\[.*?(?:\]|\Z)", rf"\1{_REMOVED}"),
    )
)
_SERIALS = re.compile(
    rf"(\b{_SERIAL}[\"']?\s*(?:=|:| )\s*)({_QUOTED}|[\w.-]*\d[\w.-]*)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the archive; ``problem`` is what kept it from being whole."""

    name: str
    text: str
    problem: str | None = None


def write_bundle(machine: Machine, target: Path, *, serials: bool = False) -> list[Part]:
    """Collects everything and writes it to a ``.tar.gz`` that is its owner's alone; returns the parts as they are
    in it. Raises OSError.
    """
    parts = [
        Part(
            part.name,
            remove_secrets(part.text, serials=serials),
            part.problem and remove_secrets(part.problem, serials=serials).strip(),
        )
        for part in collect(machine)
    ]
    lines = [f"vgpumgr {__version__}, {time.strftime('%Y-%m-%d %H:%M:%S %z')}"]
    lines += [f"{part.name}: {part.problem or 'whole'}" for part in parts]
    lines.append(f"serial numbers are {'kept' if serials else 'removed'}; secrets are removed")
    parts.insert(0, Part("MANIFEST", "\n".join(lines) + "\n"))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for part in parts:
            data = part.text.encode(errors="replace")
            info = tarfile.TarInfo(f"{DIRECTORY}/{part.name}")
            info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
            archive.addfile(info, io.BytesIO(data))
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o600)
        file.write(gzip.compress(buffer.getvalue()))
    return parts


def remove_secrets(text: str, *, serials: bool = False) -> str:
    """The text without what looks like a secret; of JSON, by the names of its fields."""
    with suppress(ValueError):
        return json.dumps(_clean(json.loads(text), serials), indent=1, ensure_ascii=False) + "\n"
    for pattern, replacement in _LONG:
        text = pattern.sub(replacement, text)
    return "".join(_clean_line(line, serials) for line in text.splitlines(keepends=True))


def _clean_line(line: str, serials: bool) -> str:
    if line.startswith(("{", "[")):
        with suppress(ValueError):
            return json.dumps(_clean(json.loads(line), serials), ensure_ascii=False) + "\n"
    return _clean_text(line, serials)


def _clean_text(text: str, serials: bool) -> str:
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text if serials else _SERIALS.sub(rf"\1{_REMOVED}", text)


def _clean(value: Any, serials: bool, name: str = "") -> Any:
    if name and re.fullmatch(_SECRET, name, re.IGNORECASE):
        return value if value is None or isinstance(value, bool) else _REMOVED
    if name and not serials and re.fullmatch(_SERIAL, name, re.IGNORECASE):
        return value if value is None or isinstance(value, bool) else _REMOVED
    if isinstance(value, dict):
        return {_clean_text(key, serials): _clean(one, serials, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_clean(one, serials) for one in value]
    return _clean_text(value, serials) if isinstance(value, str) else value


def collect(machine: Machine) -> Iterator[Part]:
    """Everything, with its secrets."""
    asked = [
        (f"vgpumgr/{words.partition(' -o')[0].replace(' ', '-')}", _make_command(machine, words))
        for words in _OWN
    ]
    if not machine.is_simulated:
        asked += [(f"host/{name}", words.split()) for name, words in _PROGRAMS.items()]
    environ = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": _find_path()}
    environ.pop("VGPUMGR_HOST", None)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(lambda one: run(one[0], one[1], environ), asked)
    for name in _FILES:
        yield read_file(f"files{name}", machine.path(name))
    yield read_file("files/etc/os-release", Path("/etc/os-release"))
    for path in (machine.config_path, *sorted(machine.config_path.parent.glob("conf.d/*.toml"))):
        yield read_file(f"config/{path.name}", path)
    yield list_files(machine)
    yield read_state(machine.state_dir / "state.sqlite")
    logs = [machine.state_dir / "audit.jsonl", *machine.state_dir.glob("operations/*.json")]
    for path in (*logs, *machine.run_dir.rglob("*.log")):
        base = machine.state_dir if path.is_relative_to(machine.state_dir) else machine.run_dir
        yield read_file(f"logs/{path.relative_to(base)}", path)


def _find_path() -> str:
    known = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(LIB_DIR.parent.parent), *([known] if known else [])])


def _make_command(machine: Machine, words: str) -> list[str]:
    # a machine that the environment describes has a name, too, and needs none here
    named = ["--machine", machine.name] if machine.name and "VGPUMGR_SIM" not in os.environ else []
    return [sys.executable, "-m", "vgpumgr", *named, *words.split()]


def run(name: str, words: Sequence[str], environ: Mapping[str, str]) -> Part:
    """What a command prints. One that does not end in time is killed, and not waited for: it may be in the kernel."""
    program = shutil.which(words[0], path=environ.get("PATH"))
    if program is None:
        return Part(name, "", f"there is no {words[0]}")
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [program, *words[1:]], env=dict(environ), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        problem = None
        try:
            code = process.wait(_TIMEOUT_S)
            problem = f"exit code {code}" if code else None
        except subprocess.TimeoutExpired:
            problem = f"no end within {_TIMEOUT_S:.0f} s"
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        text, said = (_read_end(one) for one in (out, err))
    if said.strip():
        first = next(line for line in said.splitlines() if line.strip())
        problem = f"{problem or 'remarks'}: {first[:300]}"
        text = text or said
    return Part(name, text, problem)


def _read_end(file: Any) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MAX_BYTES))
    return str(file.read().decode(errors="replace"))


def read_file(name: str, path: Path) -> Part:
    """A file, or why it cannot be read."""
    try:
        with path.open("rb") as file:
            # files of the kernel have no size, and no end to seek
            if os.fstat(file.fileno()).st_size > _MAX_BYTES:
                return Part(name, _read_end(file))
            return Part(name, file.read(_MAX_BYTES).decode(errors="replace"))
    except OSError as error:
        return Part(name, "", str(error.strerror))


def list_files(machine: Machine) -> Part:
    """Names, sizes and sums of what is remembered: the damage of a file shows without its content."""
    lines = []
    for directory in (machine.state_dir, machine.run_dir):
        for path in sorted(directory.rglob("*")):
            with suppress(OSError):
                status = path.lstat()
                line = f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {status.st_size} {path}"
                if path.is_file() and not path.is_symlink() and status.st_size <= _MAX_BYTES:
                    line += f" sha256:{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
                lines.append(line)
    return Part("state/files.txt", "\n".join(lines) + "\n")


def read_state(path: Path) -> Part:
    """The records of the state file, up to where it is damaged. Read from a copy: a log (WAL) would be merged."""
    rows: list[Any] = []
    problem = None
    try:
        with tempfile.TemporaryDirectory() as directory:
            for name in (path.name, f"{path.name}-wal"):
                if path.with_name(name).exists() or name == path.name:
                    shutil.copyfile(path.with_name(name), Path(directory, name))
            with closing(sqlite3.connect(Path(directory, path.name))) as connection:
                for kind, id_, text in connection.execute("SELECT kind, id, text FROM record"):
                    rows.append({"kind": kind, "id": id_, "record": _parse(text)})
    except OSError as error:
        problem = str(error.strerror)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        problem = f"damaged: {error}"
    return Part("state/records.json", json.dumps(rows), problem)


def _parse(text: object) -> object:
    with suppress(ValueError, TypeError):
        return json.loads(text)  # type: ignore[arg-type]
    return str(text)
