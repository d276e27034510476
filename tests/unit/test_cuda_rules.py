"""The guest's libcuda and the simulated driver answer alike to arguments that need nothing but the documentation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.calls_rig import SHIM, run_program, simulated_channel
from tests.unit.transport_rig import LIB
from vgpumgr.sim import machine as machines

pytestmark = pytest.mark.native

PROGRAM = Path(__file__).parent / "arguments_program.py"
OK, INVALID, BAD_DEVICE, BAD_HANDLE, NOT_FOUND, UNSUPPORTED = 0, 1, 101, 400, 500, 801
BAD_IMAGE, BAD_CONTEXT, NO_AFFINITY = 200, 201, 224
ZEROS, HALF = [0] * 8, [0] * 4 + [255] * 4
EXPECTED: dict[str, Any] = {
    "name of NULL": INVALID,
    "proc": [OK, True, 0],
    "proc, too new": [NOT_FOUND, False, 2],
    "proc, unknown": [NOT_FOUND, False, 1],
    "proc, per thread": [OK, True, 0],
    "proc, both streams": INVALID,
    "proc, no name": INVALID,
    "export table": [NOT_FOUND, None],
    "runtime's table": [UNSUPPORTED, None],
    "context flags": [OK, OK, OK, INVALID, INVALID, OK, INVALID],
    "primary flags": [OK, INVALID, INVALID],
    "affinity": [INVALID, INVALID, NO_AFFINITY],
    "affinity type": [INVALID, OK, INVALID],
    "peer attribute": [INVALID, BAD_DEVICE, INVALID],
    "peer access": [BAD_CONTEXT, INVALID, BAD_CONTEXT],
    "managed": [INVALID, INVALID, OK],
    "stream flags": [OK, OK, INVALID],
    "event flags": [OK, OK, OK, INVALID, OK, INVALID],
    "event record flags": INVALID,
    "pinned flags": [OK, OK, INVALID],
    "pinned, empty": INVALID,
    "registered flags": [UNSUPPORTED, INVALID],
    "registered, none": INVALID,
    "registered, empty": INVALID,
    "registered, around": INVALID,
    "pitch": [OK, OK, OK, INVALID, INVALID],
    "pitch, empty": [INVALID, INVALID],
    "damaged images": {
        "ELF of 32 bits": [BAD_IMAGE, BAD_IMAGE],
        "ELF with sections beyond all bounds": [BAD_IMAGE, BAD_IMAGE],
        "container with a short head": [BAD_IMAGE, BAD_IMAGE],
        "container of 2**63 bytes": [BAD_IMAGE, BAD_IMAGE],
        "wrapper of nothing": [BAD_IMAGE, BAD_IMAGE],
    },
    "jit options": [OK, OK, INVALID, INVALID],
    "jit options, none": [INVALID, INVALID],
    "pointer attributes": {
        "1": [OK, *ZEROS],
        "2": [OK, *HALF],
        "3": [OK, *ZEROS],
        "4": [OK, *ZEROS],
        "7": [OK, *ZEROS],
        "8": [OK, *HALF],
        "9": [OK, 254, 255, 255, 255, 255, 255, 255, 255],
        "11": [OK, *ZEROS],
        "12": [OK, *ZEROS],
        "13": [OK, *HALF],
        "14": [OK, *ZEROS],
    },
    "pointer attributes, none": INVALID,
    "pointer attributes, no room": INVALID,
    "PCI": [OK, OK, OK],
    "PCI, none": [BAD_DEVICE, BAD_DEVICE],
    "PCI, no address": [INVALID] * 4,
    "grid": [INVALID] * 5,
    "block": [INVALID] * 5,
    "block of the function": [OK, INVALID, INVALID],
    "block, product over 32 bits": INVALID,
    "shared": [OK, INVALID],
    "attribute, ignored": [OK] * 8,
    "attribute, cluster": [OK, UNSUPPORTED],
    "attribute, unknown": UNSUPPORTED,
    "configuration, none": INVALID,
    "attributes, none": INVALID,
    "parameters": [OK, INVALID],
    "parameters, both": INVALID,
    "buffer": OK,
    "buffer, reversed": OK,
    "buffer, short": INVALID,
    "buffer, no length": INVALID,
    "buffer, no pointer": INVALID,
    "buffer, unknown key": INVALID,
    "copy": OK,
    "copy, none": [INVALID, INVALID],
    "copy, no gaps": [OK, OK],
    "copy, short pitch": [INVALID] * 4,
    "copy, one row needs no pitch": OK,
    "copy, array": [INVALID, INVALID],
    "copy, no type": INVALID,
    "copy, null": [INVALID, INVALID],
    "copy, too far": [INVALID] * 3,
    "copy, empty": [OK] * 3,
    "copy, unified": OK,
    "box": [OK, OK, OK],
    "box, low": [INVALID, INVALID, OK],
    "box, level of detail": [INVALID, INVALID],
    "fill": OK,
    "fill, short pitch": INVALID,
    "fill, too many": INVALID,
    "fill, beyond": INVALID,
    "fill, empty": OK,
    "fill, not aligned": [INVALID, INVALID],
    "fill, rows not aligned": [INVALID, OK, OK],
    "device attribute": [INVALID, INVALID, INVALID, OK],
    "function attribute": [BAD_HANDLE, INVALID, OK],
    "load of no function": BAD_HANDLE,
    "kernel on a device": [OK, OK, OK, BAD_DEVICE, BAD_DEVICE, BAD_DEVICE],
    "cache of the context": [OK, INVALID, INVALID],
    "banks of the context": [OK, INVALID, INVALID],
    "cache of a function": [OK, INVALID, INVALID],
    "banks of a function": [OK, INVALID, INVALID],
    "wait flags": [OK, INVALID],
    "time, not recorded": BAD_HANDLE,
    "pool": [
        OK, OK, [OK, 4096], OK, OK,
        [OK, 0], OK, OK, True, OK,
        OK, OK, INVALID,
        OK, OK, INVALID, OK, True,
    ],
    "pool, made": [OK, INVALID, OK, UNSUPPORTED],
    "pool, of no device": [BAD_DEVICE, BAD_DEVICE],
    "pool, none": [INVALID, INVALID],
    "pool of a device": [BAD_DEVICE, INVALID, INVALID, INVALID, OK, INVALID],
    "pool of a place": [OK, BAD_DEVICE, UNSUPPORTED, UNSUPPORTED, INVALID],
    "pool's attributes": [
        [INVALID, 0], [OK, 1], [OK, 1], [OK, 1], [OK, 0], [OK, 0], [OK, 0], [INVALID, 0],
    ],
    "pool's attributes, set": [OK, OK, INVALID, OK, INVALID, INVALID, OK, INVALID],
    "pool's attributes, then": [[OK, 0], [OK, 1 << 40]],
    "pool's access": [OK, INVALID, BAD_DEVICE, UNSUPPORTED],
    "pool's access, asked": [[OK, 3], [BAD_DEVICE, -1], [UNSUPPORTED, -1]],
    "pool's access, none": INVALID,
    "from a pool": [INVALID, INVALID, INVALID, BAD_HANDLE],
}  # fmt: skip
TEXTS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    100: "no CUDA-capable device is detected",
    400: "invalid resource handle",
    717: "operation not supported on global/shared address space",
    801: "operation not supported",
    999: "unknown error",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each of the two libraries answers."""
    with simulated_channel("ring", tmp_path_factory.mktemp("sim")) as rig:
        guest = run_program(rig, sys.executable, str(PROGRAM), str(SHIM))
        simulated = subprocess.run(
            [sys.executable, PROGRAM, LIB / "sim" / "libcuda.so.1"],
            env=rig.env | machines.machine_env("a30-pair"),
            capture_output=True,
            text=True,
            check=False,
        )
    assert (guest.returncode, simulated.returncode) == (0, 0), guest.stderr + simulated.stderr
    return {"guest": json.loads(guest.stdout), "simulated": json.loads(simulated.stdout)}


@pytest.mark.parametrize("library", ["guest", "simulated"])
def test_arguments_are_refused_as_documented(
    library: str, answers: dict[str, dict[str, Any]]
) -> None:
    given = {n: a for n, a in answers[library].items() if n not in ("names", "texts")}
    assert given == EXPECTED


def test_errors_have_the_same_names_and_texts(answers: dict[str, dict[str, Any]]) -> None:
    guest, simulated = answers["guest"], answers["simulated"]
    assert guest["names"] == simulated["names"]
    assert guest["texts"] == simulated["texts"]
    assert guest["names"][2] == [OK, "CUDA_ERROR_OUT_OF_MEMORY"]
    assert guest["names"][5] == [OK, "CUDA_ERROR_PROFILER_DISABLED"]
    assert guest["names"][998] == [INVALID, None]
    assert {code: guest["texts"][code][1] for code in TEXTS} == TEXTS
    assert guest["texts"][998] == [INVALID, None]
    assert sum(result == OK for result, _ in guest["names"]) > 80
