# SPDX-License-Identifier: Apache-2.0
"""Generates what a build of the runtime library takes from its version's header and export list.

usage: generate.py MAJOR EXPORTS DRIVER_TYPES_H OUTPUT_DIRECTORY

- exports.map: the version script; NVIDIA's libraries keep all names in one node called as the SONAME
- stubs.c: every name as a weak function that answers cudaErrorNotSupported; an implemented one overrides it
- errors.inc: code, name and text of every error
"""

import re
import sys
from pathlib import Path

# Texts of codes that only the runtime has; all others come from the driver (cuGetErrorString).
_RUNTIME_TEXTS = {
    "cudaSuccess": "no error",
    "cudaErrorInvalidConfiguration": "invalid configuration argument",
    "cudaErrorInvalidPitchValue": "invalid pitch argument",
    "cudaErrorInvalidSymbol": "invalid device symbol",
    "cudaErrorInvalidMemcpyDirection": "invalid copy direction for memcpy",
    "cudaErrorInvalidDeviceFunction": "invalid device function",
    "cudaErrorInsufficientDriver": "CUDA driver version is insufficient for CUDA runtime version",
}


def read_errors(header: str) -> list[tuple[int, str]]:
    """Code and name of each enumerator of cudaError in the text of driver_types.h."""
    bare = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    body = re.search(r"enum[^{};]*\bcudaError\b[^{};]*\{(.*?)\}", bare, re.DOTALL)
    if body is None:
        raise SystemExit("no enum cudaError in the header")
    pairs = re.findall(r"\b(cuda\w+)\s*=\s*(0x[0-9a-fA-F]+|\d+)", body.group(1))
    return [(int(value, 0), name) for name, value in pairs]


def error_text(name: str) -> str:
    """A text for an error: its name in words unless we know what users see elsewhere."""
    known = _RUNTIME_TEXTS.get(name)
    if known:
        return known
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]+", name.removeprefix("cudaError"))
    return " ".join(word if word.isupper() else word.lower() for word in words)


def version_script(node: str, names: list[str]) -> str:
    """The linker's version script with all names in one node."""
    body = "".join(f"\t\t{name};\n" for name in names)
    return f"{node} {{\n\tglobal:\n{body}\tlocal:\n\t\t*;\n}};\n"


def stubs(names: list[str]) -> str:
    """C source of the weak stubs; no header is included, for each has its own prototype there."""
    lines = [
        "#include <stdatomic.h>",
        "extern int cudart_unsupported(const char *name, atomic_flag *said);",
        "#define STUB(name) \\",
        '\t__attribute__((weak, visibility("default"))) int name(void) \\',
        "\t{ \\",
        "\t\tstatic atomic_flag said = ATOMIC_FLAG_INIT; \\",
        "\t\treturn cudart_unsupported(#name, &said); \\",
        "\t}",
    ]
    return "\n".join(lines + [f"STUB({name})" for name in names]) + "\n"


def main(major: str, exports: str, header: str, output: str) -> None:
    names = Path(exports).read_text().split()
    errors = read_errors(Path(header).read_text(errors="replace"))
    out = Path(output)
    out.mkdir(parents=True, exist_ok=True)
    (out / "exports.map").write_text(version_script(f"libcudart.so.{major}", names))
    (out / "stubs.c").write_text(stubs(names))
    rows = (
        f'{{ (cudaError_t){code}, "{name}", "{error_text(name)}" }},\n' for code, name in errors
    )
    (out / "errors.inc").write_text("".join(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
