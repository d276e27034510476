"""Libraries that the guest has without their function (spec/stubs.yaml).

``python -m vgpumgr.virtio.codegen.stubs SONAME DIR`` writes what the library of that SONAME exports: each name in
``names.c``, its version in ``exports.map``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from vgpumgr.virtio.codegen.blas_names import emit_map

SPEC = Path(__file__).resolve().parent.parent / "spec" / "stubs.yaml"
#: what a function returns; the first is that of a line without a word
KINDS = ("status", "text", "null", "zero", "negative", "void")


@dataclass(frozen=True, slots=True)
class Stub:
    """A library. ``answer`` is what each of its functions returns, ``code`` that number's name in the vendor's header;
    ``names`` maps each function to one of KINDS; ``node`` is the version of its symbols, "" for that of the SONAME.
    """

    name: str
    title: str
    answer: int
    code: str
    files: tuple[str, ...]
    names: dict[str, str]
    node: str = ""


def _read_names(path: Path) -> dict[str, str]:
    words = [line.split() for line in path.read_text().splitlines()]
    return {name: rest[0] if rest else KINDS[0] for name, *rest in words}


def read_stubs(spec: Path = SPEC) -> tuple[Stub, ...]:
    """All of them, in the order of the file. Raises ValueError for a kind that is not one of KINDS."""
    found = []
    for row in yaml.safe_load(spec.read_text()):
        names = _read_names(spec.parent / "stubs" / f"{row['name']}.txt")
        wrong = {n: k for n, k in names.items() if k not in KINDS}
        if wrong:
            raise ValueError(f"stubs/{row['name']}.txt: {wrong}")
        found.append(Stub(names=names, **{**row, "files": tuple(row["files"])}))
    return tuple(found)


def emit_names(stub: Stub) -> str:
    """``names.c``"""
    out = [f"/* Generated: the names of {stub.title}. */", '#include "stub.h"', ""]
    out += [f"const int stub_answer = {stub.answer}; /* {stub.code} */", ""]
    out += [f"STUB_{kind.upper()}({name})" for name, kind in stub.names.items()]
    return "\n".join(out) + "\n"


def emit_exports(stub: Stub, soname: str) -> str:
    """``exports.map``, with the version that the vendor's symbols have."""
    text = emit_map(list(stub.names), stub.node or soname)
    return text.removeprefix("none ") if stub.node == "none" else text


def main() -> int:
    """Exit 0; 2 for a SONAME that none has."""
    soname, output = sys.argv[1], Path(sys.argv[2])
    for stub in read_stubs():
        if soname in stub.files:
            output.mkdir(parents=True, exist_ok=True)
            (output / "names.c").write_text(emit_names(stub))
            (output / "exports.map").write_text(emit_exports(stub, soname))
            return 0
    print(f"{SPEC.name}: no {soname}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
