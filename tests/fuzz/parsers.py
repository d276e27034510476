"""Fuzzing the parsers of what others write: ``python -m tests.fuzz.parsers [--seconds N] [--seed N] [NAME...]``.

Seeds are in ``corpus/NAME``; each round changes one a few times (bits, bytes, pieces of another seed, words of the
format, a piece many times over). A parser answers a value or raises the error that it documents, and nothing else:
anything else is printed with the input, and the exit status is 1. What has reached new lines of the parser's file
becomes a seed of the run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.places import short
from vgpumgr.errors import LayoutFileError, VgpumgrError
from vgpumgr.host.machine import Machine
from vgpumgr.host.pci_helper import Changes
from vgpumgr.host.pci_tree import read_function
from vgpumgr.host.sockets import parse_uevent
from vgpumgr.host.vgpu_files import VgpuFiles
from vgpumgr.mdev.control import DefinitionFiles, read_definition
from vgpumgr.mdev.observe import parse_description
from vgpumgr.mig.layout.formats.files import read_layout_file
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.vgpu import VgpuDefinition

CORPUS = Path(__file__).parent / "corpus"
UUID = "11111111-2222-4333-8444-555555555555"
ADDRESS = "0000:3b:00.4"
_MAX_BYTES = 1 << 16
_WORDS = (
    b"\0", b"\n", b"\xff", b"\xc2\xb2", b"-1", b"0", b"99999999999999999999", b"9" * 5000, b"1e999", b"NaN",
    b"[" * 3000, b"{", b"}", b"]", b'"', b":", b",", b"=", b"@", b"/../", b"&a", b"*a", b"!!python/none", b"\t",
    b"null", b"true", b"(null)", b"\xe2\x80\xa8", b"\x00" * 64, b" ",
)  # fmt: skip


@dataclass
class Target:
    """One parser; ``parse`` raises AssertionError where its answer is not what it promises."""

    name: str
    parse: Callable[[Path, bytes], object]
    #: errors that it documents
    errors: tuple[type[Exception], ...] = ()
    seeds: list[bytes] = field(default_factory=list)


def parse_definitions(directory: Path, data: bytes) -> None:
    """A file of mdevctl; what is read can be written, and read again."""
    files = DefinitionFiles(Machine(None, directory, directory, directory, "test:///default"))
    path = files.directory / "mtty" / UUID
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    listed = files.list_definitions()
    definition = read_definition(path)
    assert listed == (definition,)
    assert isinstance(definition, VgpuDefinition)
    assert all(isinstance(text, str) for pair in definition.attributes for text in pair)
    try:
        definition.type_id.encode()
        json.dumps(definition.attributes, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # half a character, which JSON can say and no file can
    files.write_definition(definition)
    assert files.list_definitions() == (definition,)


def parse_layouts(_directory: Path, data: bytes) -> None:
    """A file of nvidia-vgpu-device-manager, or of ours."""
    file = read_layout_file(data.decode(errors="replace"), "fuzz.yaml")
    for specs in file.layouts.values():
        for spec in specs:
            assert all(vgpu.count > 0 for vgpu in spec.vgpus or ())


def parse_descriptions(_directory: Path, data: bytes) -> None:
    """The description of a type, as ``/sys`` has it."""
    found = parse_description(data.decode(errors="replace"))
    numbers = (found.framebuffer_bytes, found.heads, found.max_instances, found.frame_rate_limit)
    assert all(number is None or number >= 0 for number in numbers)


def parse_creatable(directory: Path, data: bytes) -> None:
    """``creatable_vgpu_types``, and every other attribute of a virtual function with the same bytes."""
    device = directory / "sys/bus/pci/devices" / ADDRESS
    (device / "nvidia").mkdir(parents=True, exist_ok=True)
    for name in ("creatable_vgpu_types", "current_vgpu_type", "placement_id", "gpu_instance_id"):
        (device / "nvidia" / name).write_bytes(data)
    for name in ("numa_node", "vendor"):
        (device / name).write_bytes(data)
    json.dumps(VgpuFiles(directory).read_host())


def parse_attributes(directory: Path, data: bytes) -> None:
    """``driver_override`` and the attributes of a PCI function."""
    device = directory / "sys/bus/pci/devices" / ADDRESS
    device.mkdir(parents=True, exist_ok=True)
    whole = (
        "vendor",
        "device",
        "class",
        "numa_node",
        "boot_vga",
        "sriov_totalvfs",
        "driver_override",
    )
    for name in whole:
        (device / name).write_bytes(data)
    override = Changes(directory).read_override(ADDRESS)
    assert override is None or override.strip() == override
    machine = Machine(None, directory, directory, directory, "test:///default")
    read_function(machine, PciAddress.parse(ADDRESS))


def parse_uevents(_directory: Path, data: bytes) -> None:
    """A message of the kernel."""
    event = parse_uevent(data)
    assert event is None or "/" not in event.name


TARGETS = (
    Target("definitions", parse_definitions, (VgpumgrError,)),
    Target("layouts", parse_layouts, (LayoutFileError,)),
    Target("descriptions", parse_descriptions),
    Target("creatable", parse_creatable, ()),
    Target("attributes", parse_attributes, (VgpumgrError,)),
    Target("uevents", parse_uevents),
)


def load(target: Target) -> Target:
    """With its seeds; there must be some."""
    target.seeds = [path.read_bytes() for path in sorted((CORPUS / target.name).iterdir())]
    assert target.seeds, f"no corpus for {target.name}"
    return target


def mutate(choice: random.Random, seeds: list[bytes]) -> bytes:
    """A seed, changed a few times."""
    data = bytearray(choice.choice(seeds))
    for _ in range(choice.randint(1, 6)):
        at = choice.randint(0, len(data))
        end = min(len(data), at + choice.randint(0, 16))
        kind = choice.randrange(6)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << choice.randrange(8)
        elif kind == 1:
            data[at:at] = choice.choice(_WORDS)
        elif kind == 2:
            del data[at:end]
        elif kind == 3:
            other = choice.choice(seeds)
            start = choice.randint(0, len(other))
            data[at:end] = other[start : start + choice.randint(0, 64)]
        elif kind == 4:
            data[at:at] = bytes(data[at:end]) * choice.randint(1, 200)
        else:
            data[at:end] = choice.choice(_WORDS)
    return bytes(data[:_MAX_BYTES])


@contextmanager
def traced(lines: set[tuple[str, int]]) -> Iterator[None]:
    """Lines of the program that are run."""

    def local(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def begin(frame: FrameType, _event: str, _argument: Any) -> Any:
        return local if "/vgpumgr/" in frame.f_code.co_filename else None

    sys.settrace(begin)
    try:
        yield
    finally:
        sys.settrace(None)


def try_one(target: Target, directory: Path, data: bytes) -> str | None:
    """What is wrong with the answer."""
    try:
        target.parse(directory, data)
    except target.errors:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


def fuzz(target: Target, seed: int, rounds: int, seconds: float, *, guided: bool) -> dict[str, Any]:
    """So many rounds, or as many as there is time for."""
    choice, wrong = random.Random(seed), dict[str, str]()
    seen: set[tuple[str, int]] = set()
    end_s, done, kept = time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory(dir=short()) as name:
        cases = iter(target.seeds[:])
        while done < rounds and time.monotonic() < end_s and len(wrong) < 20:
            data = next(cases, None) or mutate(choice, target.seeds)
            done += 1
            lines: set[tuple[str, int]] = set()
            if guided:
                with traced(lines):
                    problem = try_one(target, Path(name), data)
                if not lines <= seen:
                    seen |= lines
                    kept += 1
                    target.seeds.append(data)
            else:
                problem = try_one(target, Path(name), data)
            if problem and problem not in wrong:
                wrong[problem] = repr(data[:400])
    return {"rounds": done, "new_seeds": kept, "lines": len(seen), "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60, help="for each")
    parser.add_argument("--rounds", type=int, default=1 << 40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    answer = {
        target.name: fuzz(load(target), asked.seed, asked.rounds, asked.seconds, guided=True)
        for target in TARGETS
        if not asked.names or target.name in asked.names
    }
    print(json.dumps(answer, indent=1))
    return int(any(found["wrong"] for found in answer.values()))


if __name__ == "__main__":
    sys.exit(main())
