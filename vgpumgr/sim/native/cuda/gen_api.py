# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of the simulated driver from NVIDIA's public headers.

Input is `cudaTypedefs.h` preprocessed with `__CUDA_API_VERSION_INTERNAL`, which shows every function under the name
that the library exports: all versions and the `_ptds`/`_ptsz` variants. Output, all of it C:

* `api_stubs.c`: each function once as a weak definition. A per-thread-stream variant calls the plain function with the
  thread's default stream switched; everything else answers CUDA_ERROR_NOT_SUPPORTED. A function that the simulator
  implements has a strong definition, which wins.
* `api_procs.c`: names, versions and addresses for cuGetProcAddress.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

FUNCTION = re.compile(
    r"\bCUresult\s+(cu[A-Za-z0-9_]+)\s*\(([^;{]*?)\)\s*(?:__attribute__[^;]*)?;", re.S
)
TYPEDEF = re.compile(r"PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)")
NEWEST_SUFFIX = 9
# Declared by cudaProfiler.h, which is no part of cudaTypedefs.h; the versions are those of cudaProfilerTypedefs.h.
PROFILER = {"cuProfilerStart": 4000, "cuProfilerStop": 4000}
HEAD = """/* Made by gen_api.py from NVIDIA's headers; do not edit. */
#include "api_tables.h"

"""


def read_functions(text: str) -> dict[str, str]:
    """Exported name -> parameter list, as the header writes it."""
    return {name: " ".join(params.split()) for name, params in FUNCTION.findall(text)}


def argument_names(params: str) -> list[str]:
    """Names of the parameters, in order."""
    if params == "void":
        return []
    names = [re.search(r"(\w+)\s*(?:\[\w*\])?$", p.strip()) for p in params.split(",")]
    if None in names:
        raise SystemExit(f"gen_api: cannot read the parameters ({params})")
    return [m.group(1) for m in names if m]


def stub(name: str, params: str, functions: dict[str, str]) -> str:
    """The weak definition of one function."""
    plain = re.sub(r"_pt[ds][sz]$", "", name)
    if plain == name:
        return f"WEAK CUresult {name}(void) {{ return CUDA_ERROR_NOT_SUPPORTED; }}\n"
    if plain not in functions:
        raise SystemExit(f"gen_api: {name} has no plain form")
    call = f"{plain}({', '.join(argument_names(params))})"
    return (
        f"WEAK CUresult {name}({params})\n{{\n\tdefault_stream_per_thread(1);\n"
        f"\tCUresult r = {call};\n\tdefault_stream_per_thread(-1);\n\treturn r;\n}}\n"
    )


def stubs(functions: dict[str, str]) -> tuple[str, str]:
    """The plain stubs, which need no types, and the per-thread-stream wrappers, which do."""
    plain = {n: p for n, p in functions.items() if not re.search(r"_pt[ds][sz]$", n)}
    bare = '/* Made by gen_api.py; do not edit. */\n#include "api_stubs.h"\n\n'
    bare += "".join(stub(n, p, functions) for n, p in plain.items())
    wrap = HEAD + "".join(stub(n, p, functions) for n, p in functions.items() if n not in plain)
    return bare, wrap


def procs(text: str, functions: dict[str, str]) -> str:
    """Table of cuGetProcAddress. The n-th version of a name belongs to the n-th symbol of that name."""
    versions: dict[tuple[str, str], set[int]] = defaultdict(set)
    for base, version, suffix in TYPEDEF.findall(text):
        versions[base, suffix].add(int(version))
    rows = []
    for (base, suffix), found in sorted(versions.items()):
        bases = [base, *(f"{base}_v{n}" for n in range(2, NEWEST_SUFFIX))]
        symbols = [b + suffix for b in bases if b + suffix in functions]
        if len(symbols) != len(found):
            raise SystemExit(f"gen_api: {base}{suffix}: versions {found}, symbols {symbols}")
        per_thread = "true" if suffix else "false"
        rows += [
            f'\t{{"{base}", {version}, {per_thread}, (void *){symbol}}},\n'
            for version, symbol in zip(sorted(found), symbols, strict=True)
        ]
    rows += [f'\t{{"{n}", {version}, false, (void *){n}}},\n' for n, version in PROFILER.items()]
    table = "".join(rows)
    declare = "".join(f"API CUresult {name}(void);\n" for name in PROFILER)
    return (
        f"{HEAD}{declare}\nconst struct cuda_proc api_procs[] = {{\n{table}}};\n"
        f"const size_t n_api_procs = {len(rows)};\n"
    )


def main(argv: list[str]) -> None:
    """gen_api.py PREPROCESSED OUTPUT_DIRECTORY"""
    text = Path(argv[1]).read_text()
    out = Path(argv[2])
    functions = read_functions(text)
    bare, wrap = stubs(functions)
    for name, content in {
        "api_stubs.c": bare,
        "api_variants.c": wrap,
        "api_procs.c": procs(text, functions),
    }.items():
        (out / name).write_text(content)


if __name__ == "__main__":
    main(sys.argv)
