"""Guest library and worker of a newer version: the same sources with a description that has been changed."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.unit.calls_rig import RULES, SPARSE_RULES, WORKER_RULES
from tests.unit.test_codegen import _include
from vgpumgr.virtio.codegen.__main__ import SPEC, load, outputs, write_headers

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "vgpumgr" / "virtio" / "native"
VERSION = "99.1.0"

PITCH = "    request: [width: u64, height: u64, element: u32]\n"
#: what has gone: an operation, and the function that is another way to it
GONE = ("cuMemsetD2D16Async", "cuMemsetD2D16_v2")
ADDED = (
    '  - {c: "CUresult cuDeviceGetNvSciSyncAttributes(void *list, CUdevice dev, int flags)", '
    "hand: added.c, uses: [added]}\n"
)
#: what differs besides: one operation has its fields in another order, one has come
CHANGES = (
    (PITCH, "    request: [height: u64, element: u32, width: u64]\n"),
    ("\nfunctions:\n", f"\nfunctions:\n{ADDED}"),
    (
        "operations:\n",
        "operations:\n  - {id: 0xfff0, name: added, class: sync, reply: [value: u32], worker: hand}\n",
    ),
)
ADDED_GUEST = """
#include "shim.h"
SHIM_API CUresult cuDeviceGetNvSciSyncAttributes(void *list, CUdevice dev, int flags)
{
	(void)list, (void)dev, (void)flags;
	struct vg_added_reply out;
	CUresult r = vg_send_added(&out);

	return r == CUDA_SUCCESS && out.value != 7 ? CUDA_ERROR_UNKNOWN : r;
}
"""
ADDED_WORKER = """
#include "vg_worker.h"
CUresult wk_do_added(struct wk_call *c, struct vg_added_reply *out)
{
	(void)c;
	out->value = 7;
	return CUDA_SUCCESS;
}
"""


@dataclass(frozen=True)
class NewerPackage:
    """``library`` is a directory like vgpumgr/_lib, with the guest's libcuda.so.1."""

    library: Path
    worker: Path


def build_newer_package(directory: Path) -> NewerPackage:
    """Both sides of that version, in ``directory``."""
    text = SPEC.read_text()
    for old, new in CHANGES:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    for name in GONE:
        text, count = re.subn(
            rf"^  - c: CUresult {name}\(.*\n(?:    .*\n)+", "", text, flags=re.MULTILINE
        )
        assert count == 1, name
    (directory / "cuda.yaml").write_text(text)
    spec = load(directory / "cuda.yaml")
    made = directory / "generated"
    made.mkdir()
    for name, data in outputs(spec, native="generated").items():
        if name.startswith("generated/"):
            (directory / name).write_bytes(data)
    write_headers(spec, _include(), made)
    (made / "added_guest.c").write_text(ADDED_GUEST)
    (made / "added_worker.c").write_text(ADDED_WORKER)
    guest = directory / "lib" / "guest"
    guest.mkdir(parents=True)
    library, worker = guest / "libcuda.so.1", directory / "vgpumgr-worker"
    _compile(made, library, *_guest_sources(made), options=_guest_options(made))
    _compile(made, worker, *_worker_sources(made), options=["-pie", "-ldl"])
    return NewerPackage(directory / "lib", worker)


def _guest_sources(made: Path) -> list[Path]:
    transport = [p for p in (NATIVE / "transport").glob("*.c") if not p.name.startswith("worker_")]
    names = ("vg_stubs.c", "vg_codec.c", "vg_unsupported.c", "vg_procs.c", "added_guest.c")
    return [
        *sorted((NATIVE / "shim").glob("*.c")), *sorted(RULES.glob("*.c")), *sorted(transport),
        NATIVE / "codec" / "codec.c", *(made / name for name in names),
    ]  # fmt: skip


def _guest_options(made: Path) -> list[str]:
    links = f"-Wl,--version-script={made / 'libcuda.map'},-Bsymbolic,-z,nodelete"
    return ["-shared", "-Wl,-soname,libcuda.so.1", links]


def _worker_sources(made: Path) -> list[Path]:
    shared = [NATIVE / "transport" / name for name in ("layout.c", "util.c")]
    names = ("vg_dispatch.c", "vg_codec.c", "added_worker.c")
    names += tuple(
        f"vg_{n}_{kind}.c"
        for n in ("blas", "dnn", "solver", "sparse")
        for kind in ("table", "calls")
    )
    return [
        *sorted((NATIVE / "worker").glob("*.c")),
        *WORKER_RULES,
        *sorted((NATIVE / "transport").glob("worker_*.c")), *shared,
        *sorted((NATIVE / "codec").glob("*.c")), *(made / name for name in names),
    ]  # fmt: skip


def _compile(made: Path, to: Path, *sources: Path, options: list[str]) -> None:
    defines = ["-D_GNU_SOURCE", "-D__CUDA_API_VERSION_INTERNAL", f'-DVGPUMGR_VERSION="{VERSION}"']
    built = ROOT / "build" / "vgpumgr" / "native" / "cuda_rules"
    places = [
        made,
        NATIVE,
        *(NATIVE / d for d in ("codec", "shim", "worker")),
        RULES,
        SPARSE_RULES,
        built,
    ]
    words = ["cc", "-O0", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-pthread"]
    command = [*words, *defines, *(f"-I{d}" for d in places), f"-isystem{_include()}"]
    command += ["-o", str(to), *map(str, sources), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
