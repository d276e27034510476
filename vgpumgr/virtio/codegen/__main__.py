"""``python -m vgpumgr.virtio.codegen``: writes the committed outputs; ``--check`` only compares them;
``--headers DIR --output DIR`` writes what the build makes from NVIDIA's headers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vgpumgr.virtio.codegen.check import check
from vgpumgr.virtio.codegen.emit_codec import emit_codec, emit_ops
from vgpumgr.virtio.codegen.emit_docs import emit_coverage, emit_seeds
from vgpumgr.virtio.codegen.emit_guest import emit_stubs, emit_stubs_header
from vgpumgr.virtio.codegen.emit_worker import emit_dispatch, emit_driver, emit_worker_header
from vgpumgr.virtio.codegen.headers import (
    HeaderError,
    emit_map,
    emit_procs,
    emit_unsupported,
    exported_names,
    preprocess,
    variants,
)
from vgpumgr.virtio.codegen.model import Spec, SpecError
from vgpumgr.virtio.codegen.parse import parse

VIRTIO = Path(__file__).resolve().parent.parent
SPEC = VIRTIO / "spec" / "cuda.yaml"


def outputs(spec: Spec, native: str = "vgpumgr/virtio/native/generated") -> dict[str, bytes]:
    """Every committed output by its path in the source tree."""
    files = {
        f"{native}/vg_ops.h": emit_ops(spec),
        f"{native}/vg_codec.c": emit_codec(spec),
        f"{native}/vg_stubs.h": emit_stubs_header(spec),
        f"{native}/vg_stubs.c": emit_stubs(spec),
        f"{native}/vg_driver.h": emit_driver(spec),
        f"{native}/vg_worker.h": emit_worker_header(spec),
        f"{native}/vg_dispatch.c": emit_dispatch(spec),
        "docs/coverage.md": emit_coverage(spec),
    }
    seeds = {f"tests/fuzz/corpus/calls/{n}.bin": data for n, data in emit_seeds(spec).items()}
    return {name: text.encode() for name, text in files.items()} | seeds


def load(path: Path = SPEC) -> Spec:
    """The description at ``path``, checked. Raises :class:`SpecError`."""
    spec = parse(path)
    check(spec)
    return spec


def stale(root: Path, files: dict[str, bytes]) -> list[str]:
    """Those of ``files`` that are missing under ``root`` or differ there."""
    return [
        n
        for n, data in files.items()
        if not (root / n).is_file() or (root / n).read_bytes() != data
    ]


def write_headers(spec: Spec, include: Path, output: Path) -> None:
    """Writes the C files that need NVIDIA's headers into ``output``."""
    cuda = preprocess(include, "cuda.h")
    names = exported_names(cuda)
    table = variants(names, preprocess(include, "cudaTypedefs.h"))
    output.mkdir(parents=True, exist_ok=True)
    (output / "vg_unsupported.c").write_text(emit_unsupported(spec, names))
    (output / "vg_procs.c").write_text(emit_procs(table))
    (output / "libcuda.map").write_text(emit_map(names))


def main() -> int:
    """Exit 0: done or up to date; 1: stale or wrong."""
    parser = argparse.ArgumentParser(prog="vgpumgr.virtio.codegen", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if an output is out of date"
    )
    parser.add_argument("--headers", type=Path, help="directory of cuda.h and cudaTypedefs.h")
    parser.add_argument("--output", type=Path, help="where to write what is made from the headers")
    args = parser.parse_args()
    try:
        spec = load()
        if args.headers:
            write_headers(spec, args.headers, args.output)
            return 0
    except (SpecError, HeaderError) as error:
        print(error, file=sys.stderr)
        return 1
    root = VIRTIO.parent.parent
    files = outputs(spec)
    changed = stale(root, files)
    for name in changed:
        if args.check:
            print(f"{name}: out of date; run python -m vgpumgr.virtio.codegen", file=sys.stderr)
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(files[name])
    return 1 if args.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
