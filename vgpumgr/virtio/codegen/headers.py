"""What is read from NVIDIA's headers at build time: every exported name, versions for cuGetProcAddress, error names.

The headers are not ours to ship, so nothing of this is committed. ``cc -E`` does the reading: it resolves the macros
that give old names new versions.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from vgpumgr.virtio.codegen.model import Spec


@dataclass(frozen=True, slots=True)
class Variant:
    """A name as cuGetProcAddress knows it, since which CUDA version, and the symbol behind it."""

    name: str
    version: int
    per_thread: bool
    symbol: str


class HeaderError(Exception):
    """A header that does not say what we expect of it."""


def preprocess(include: Path, header: str, compiler: str = "cc") -> str:
    """The header after the preprocessor, with old and per-thread variants declared."""
    command = [
        compiler,
        "-E",
        "-P",
        "-D__CUDA_API_VERSION_INTERNAL",
        "-I",
        str(include),
        "-x",
        "c",
        "-",
    ]
    done = subprocess.run(
        command, input=f"#include <{header}>\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HeaderError(f"{include / header}: {done.stderr.strip()}")
    return done.stdout


def exported_names(text: str) -> set[str]:
    """Names of all functions that cuda.h declares, ``text`` being that header preprocessed."""
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))


def variants(names: set[str], typedefs: str) -> list[Variant]:
    """cuGetProcAddress's table. A name's plain versions, in order, are its symbols plain, _v2, _v3, ...; a per-thread
    variant of some version has the symbol of the newest plain version not newer, with its suffix."""
    versions: dict[str, set[int]] = defaultdict(set)
    suffixed: list[tuple[str, int, str]] = []
    for name, version, suffix in re.findall(r"\*\s*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)", typedefs):
        if suffix:
            suffixed.append((name, int(version), suffix))
        else:
            versions[name].add(int(version))
    found: list[Variant] = []
    symbols: dict[tuple[str, int], str] = {}
    for name, known in versions.items():
        candidates = [n for n in (name, *(f"{name}_v{i}" for i in range(2, 10))) if n in names]
        if len(candidates) != len(known):
            raise HeaderError(f"{name}: versions {sorted(known)} but symbols {candidates}")
        for version, symbol in zip(sorted(known), candidates, strict=True):
            symbols[name, version] = symbol
            found.append(Variant(name, version, False, symbol))
    for name, version, suffix in suffixed:
        base = symbols[name, max(v for v in versions[name] if v <= version)] + suffix
        if base not in names:
            raise HeaderError(f"{name}{suffix} of version {version}: there is no {base}")
        found.append(Variant(name, version, True, base))
    return sorted(found, key=lambda v: (v.name, v.per_thread, v.version))


def emit_unsupported(spec: Spec, names: set[str]) -> str:
    """``vg_unsupported.c``: the names that the description does not have."""
    done = {e for f in spec.functions for e in f.exports}
    if unknown := sorted(done - names):
        raise HeaderError(f"described but not in cuda.h: {', '.join(unknown)}")
    out = ["/* Generated from cuda.h: names without an implementation yet. */"]
    out += [
        f'__attribute__((visibility("default"))) int {n}(void);\nint {n}(void) {{ return 801; }}'
        for n in sorted(names - done)
    ]
    return "\n".join(out) + "\n"


def emit_procs(table: list[Variant]) -> str:
    """``vg_procs.c``: cuGetProcAddress's table, sorted by name."""
    out = ["/* Generated from cudaTypedefs.h and cuda.h. */", '#include "procs.h"\n']
    out.append("const struct cuda_proc shim_procs[] = {")
    out += [
        f'\t{{ "{v.name}", {v.version}, {int(v.per_thread)}, (void *){v.symbol} }},' for v in table
    ]
    out.append("};\nconst size_t shim_procs_count = sizeof(shim_procs) / sizeof(shim_procs[0]);")
    return "\n".join(out) + "\n"


def emit_map(names: set[str]) -> str:
    """The version script: exactly the header's names, and our own counter for tests."""
    exports = "".join(f"\t\t{n};\n" for n in sorted(names | {"vgpumgr_channel_waits"}))
    return f"{{\n\tglobal:\n{exports}\tlocal:\n\t\t*;\n}};\n"
