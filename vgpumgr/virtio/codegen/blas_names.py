"""``python -m vgpumgr.virtio.codegen.blas_names NAMES SONAME DIR``: what the guest's library SONAME exports, as a
version script, and each name as a weak function that says that it is not supported; what has an implementation is
linked before it. NAMES: the documented names of the vendor's library."""

from __future__ import annotations

import sys
from pathlib import Path

#: by a part of a library's name: what refuses
REFUSE = {
    "cudnn": "dnn_unsupported",
    "cufft": "fft_unsupported",
    "cusolver": "solver_unsupported",
    "cusparse": "sparse_unsupported",
    "curand": "rand_unsupported",
    "nccl": "nccl_unsupported",
}


def emit_unsupported(names: list[str], refuse: str) -> str:
    """``unsupported.c``. `refuse` says the name and has the library's status."""
    out = [
        "/* Generated: names without an implementation. */",
        f"#include <stdatomic.h>\n\nint {refuse}(const char *name, atomic_flag *said);\n",
        "#define UNSUPPORTED(name) \\",
        '\t__attribute__((weak, visibility("default"))) int name(void); \\',
        "\tint name(void) \\",
        "\t{ \\",
        "\t\tstatic atomic_flag said = ATOMIC_FLAG_INIT; \\",
        f"\t\treturn {refuse}(#name, &said); \\",
        "\t}",
    ]
    return "\n".join([*out, *(f"UNSUPPORTED({n})" for n in names)]) + "\n"


def emit_null(names: list[str]) -> str:
    """``null.c``: the same names as weak functions that succeed, for the null driver's library."""
    out = [
        "/* Generated: what does nothing. */",
        "#define NOTHING(name) \\",
        '\t__attribute__((weak, visibility("default"))) int name(void); \\',
        "\tint name(void) \\",
        "\t{ \\",
        "\t\treturn 0; \\",
        "\t}",
    ]
    return "\n".join([*out, *(f"NOTHING({n})" for n in names)]) + "\n"


def emit_map(names: list[str], soname: str) -> str:
    """``exports.map``: the genuine library's version node, under which programs ask for its symbols."""
    exports = "".join(f"\t\t{n};\n" for n in names)
    return f"{soname} {{\n\tglobal:\n{exports}\tlocal:\n\t\t*;\n}};\n"


def main() -> int:
    """Exit 0."""
    names, soname, output = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    found = names.read_text().split()
    output.mkdir(parents=True, exist_ok=True)
    refuse = next((f for n, f in REFUSE.items() if n in soname), "blas_unsupported")
    (output / "unsupported.c").write_text(emit_unsupported(found, refuse))
    (output / "null.c").write_text(emit_null(found))
    versions = emit_map(found, soname)
    (output / "exports.map").write_text(
        versions.removeprefix(f"{soname} ") if "nccl" in soname else versions
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
