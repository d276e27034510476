"""Fat binaries: nvcc's own in every compression mode, and made-up ones."""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import subprocess
from pathlib import Path

import pytest

from tests.sim.ptx_runner import SOURCES, compile_ptx, library, nvcc

OK, MALFORMED, NO_PTX, TOO_LARGE = range(4)
UNKNOWN = 2**64 - 1
MAGIC = 0xBA55ED50
LZ4, ZSTD, SPECIFIC = 0x2000, 0x8000, 0x100000


def find(image: bytes, cc: int) -> tuple[int, bytes, str]:
    """Status, text and message."""
    text, length = ctypes.c_void_p(), ctypes.c_size_t()
    error = ctypes.create_string_buffer(256)
    lib = library()
    status = lib.runner_find_ptx(
        image, len(image), cc, ctypes.byref(text), ctypes.byref(length), error, 256
    )
    data = ctypes.string_at(text.value, length.value) if text.value else b""
    lib.runner_free(text)
    return status, data, error.value.decode()


def length_of(image: bytes, limit: int | None = None) -> int:
    value: int = library().runner_image_length(image, len(image) if limit is None else limit)
    return value


def entry(
    data: bytes, arch: int = 80, kind: int = 1, flags: int = 0x11, size: int = 0, header: int = 64
) -> bytes:
    payload = data + bytes(-len(data) % 8)
    head = struct.pack(
        "<HHIQIIIIIIQQQ",
        *(kind, 0x101, header, len(payload), len(data), 0, 0x80003, arch, 0, 0, flags, 0, size),
    )
    return head + bytes(header - 64) + payload


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


@functools.cache
def fatbin(tmp: Path, *options: str) -> bytes:
    out = tmp / ("x".join(options).replace("/", "_") + ".fatbin")
    subprocess.run(
        [nvcc(), "--fatbin", *options, "-o", out, SOURCES / "faults.cu"],
        check=True,
        capture_output=True,
        timeout=300,
    )
    return out.read_bytes()


@pytest.fixture(scope="session")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fatbin")


GENCODE = (
    "-gencode=arch=compute_75,code=compute_75",
    "-gencode=arch=compute_90,code=compute_90",
)


@pytest.mark.cuda
@pytest.mark.parametrize("mode", ["none", "speed", "default", "balance", "size"])
def test_nvcc_images_of_all_compression_modes(where: Path, mode: str) -> None:
    image = fatbin(where, *GENCODE, f"--compress-mode={mode}")
    assert length_of(image) == len(image)
    status, text, message = find(image, 80)
    assert (status, message) == (OK, "")
    assert b".target sm_75" in text
    assert text.rstrip().endswith(b"}")
    assert b".target sm_90" in find(image, 120)[1]
    status, text, message = find(image, 70)
    assert (status, text) == (NO_PTX, b"")
    assert "7.5" in message
    assert length_of(image + b"tail") == len(image)


def test_choice_of_architecture() -> None:
    image = container(
        entry(b".version 1 //70", 70),
        entry(b"\x7fELF", 89, kind=2),
        entry(b".version 1 //90a", 90, flags=0x11 | SPECIFIC),
        entry(b".version 1 //80", 80, header=200),
        entry(b".version 1 //90", 90, header=72),
    )
    assert [find(image, cc)[1][-2:] for cc in (70, 75, 80, 89, 90, 120)] == [
        *(b"70", b"70", b"80", b"80", b"90", b"90")
    ]
    only = container(entry(b".version 1", 90, flags=0x11 | SPECIFIC))
    assert find(only, 90)[0] == OK
    assert find(only, 100)[0] == NO_PTX


def test_containers_in_a_row() -> None:
    first, second = container(entry(b".version 75", 75)), container(entry(b".version 80", 80))
    image = first + second
    assert length_of(image) == len(image)
    assert length_of(image, UNKNOWN) == len(first)
    assert find(image, 86)[1] == b".version 80"
    assert find(image, 75)[1] == b".version 75"


def test_plain_ptx_and_machine_code() -> None:
    text = b"// comment\n/* more */\n.version 8.0\n.target sm_80\n"
    assert length_of(text) == len(text)
    assert length_of(text + b"\0rest") == len(text)
    assert length_of(text + b"\0", UNKNOWN) == len(text)
    assert find(text + b"\0", 80)[:2] == (OK, text)
    assert find(b"\x7fELF" + bytes(60), 80)[0] == NO_PTX
    assert find(b"junk", 80)[0] == MALFORMED
    assert length_of(b"junk") == 0


def test_elf_ends_behind_its_last_table() -> None:
    sections = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 400, 100, 0, 0, 1, 0)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 300, 64, 0, 64, 56, 1, 64, 1, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 0, 0, 0, 0, 10, 10, 1)
    image = head + sections + bytes(300 - 128) + segment
    image += bytes(500 - len(image))
    assert length_of(image) == 500
    assert length_of(image + b"more") == 500
    assert length_of(image, UNKNOWN) == 500
    assert length_of(image[:499]) == 0


def test_bounds() -> None:
    data = bytes(range(40))
    cases = {
        MALFORMED: [
            container(entry(data, header=64))[:-8],
            container(struct.pack("<HHIQ", 1, 0x101, 32, 0) + bytes(48)),
            container(struct.pack("<HHIQ", 1, 0x101, 64, 2**63) + bytes(48)),
            container(entry(data, flags=LZ4, size=100)),
            container(entry(data, flags=ZSTD, size=100)),
        ],
        TOO_LARGE: [
            container(entry(data, flags=LZ4, size=2**40)),
            container(entry(data, flags=ZSTD, size=2**28)),
        ],
        NO_PTX: [container(), container(entry(data, kind=2), entry(data, kind=256))],
    }
    for want, images in cases.items():
        for image in images:
            status, text, message = find(image, 80)
            assert (status, text) == (want, b"")
            assert message


@pytest.mark.cuda
def test_padding_is_no_part_of_the_text() -> None:
    text = compile_ptx("faults.cu").encode()
    assert find(container(entry(text + b"\0")), 80)[1] == text


PAGE = mmap.PAGESIZE


def test_an_image_without_limit_is_not_read_beyond_its_end() -> None:
    """Loaders get a pointer and no length: an image at the end of mapped memory must not end the process."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, 2 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(ctypes.c_void_p(address + PAGE), PAGE, 0) == 0
    for image in (b".version 8.0\n\0", b"\x7fEL\0", b"\x50\xed\0", b"\0"):
        memory[PAGE - len(image) : PAGE] = image
        where = ctypes.cast(address + PAGE - len(image), ctypes.c_char_p)
        expected = len(image) - 1 if image.startswith(b".version") else 0
        assert library().runner_image_length(where, ctypes.c_size_t(UNKNOWN)) == expected
    assert libc.mprotect(ctypes.c_void_p(address + PAGE), PAGE, 3) == 0
