# SPDX-License-Identifier: Apache-2.0
"""Makes the exported functions of the simulated cuBLAS, and the tables behind them, from functions.txt and refused.txt.

``gen_blas.py FUNCTIONS REFUSED OUTPUT-DIRECTORY`` writes:

* `families.h`: the arguments of each family as a struct
* `families.c`: what is checked of them, and which memory they name
* `exports.c`: the functions themselves
* `refused_LIBRARY.c`: functions that answer that they are not supported
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ARGUMENT = re.compile(
    r"(?P<kind>\w+)(?: (?P<type>@?\w+)(?P<five>\*5)?)?? (?P<name>\w+)"
    r"(?:\[(?P<shape>[^]]*)\])?(?::(?P<element>\w+))?(?:\?(?P<unless>\w+))?$"
)
DEVICE = {"vec", "mat", "tri", "ints", "vecs", "mats"}
SCALAR = {"in", "inout", "out"}
INTEGERS = {"size", "batch", "count", "inc", "step", "ld"}
LETTERS = {
    "S": "BL_R_32F",
    "D": "BL_R_64F",
    "C": "BL_C_32F",
    "Z": "BL_C_64F",
    "H": "BL_R_16F",
    "T": "BL_R_16BF",
}
REAL = {"C": "S", "Z": "D"}
HEAD = "/* Made by gen_blas.py; do not edit. */\n"


@dataclass
class Argument:
    """One argument of a family."""

    kind: str
    name: str
    type: str = ""
    five: bool = False
    shape: list[str] = field(default_factory=list)
    element: str = ""
    unless: str = ""

    @property
    def is_pointer(self) -> bool:
        """Is it an address?"""
        return self.kind in DEVICE or self.kind in SCALAR or self.kind == "host"


@dataclass
class Family:
    """Functions with the same arguments."""

    name: str
    run: str
    functions: list[tuple[str, bool]]
    arguments: list[Argument] = field(default_factory=list)


def split_arguments(text: str) -> list[str]:
    """The parts between commas that are outside of brackets."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text)]


def read_argument(text: str) -> Argument:
    """One argument, as functions.txt writes it."""
    match = ARGUMENT.match(text)
    if not match:
        raise ValueError(f"functions.txt: {text!r}")
    part = match.groupdict(default="")
    shape = [s.strip() for s in part["shape"].split(",")] if part["shape"] else []
    return Argument(
        part["kind"],
        part["name"],
        part["type"],
        bool(part["five"]),
        shape,
        part["element"],
        part["unless"],
    )


def read_families(text: str) -> list[Family]:
    """All families of the file."""
    families: list[Family] = []
    for line in text.splitlines():
        if line.startswith("family "):
            head, _, names = line.partition(":")
            words = head.split()
            run = words[3] if len(words) > 2 else "run_blas"
            functions = [(n.rstrip("+"), n.endswith("+")) for n in names.split()]
            families.append(Family(words[1], run, functions))
        elif line.startswith("  "):
            families[-1].arguments += [
                read_argument(part) for part in split_arguments(line.strip())
            ]
    return families


def expression(family: Family, text: str) -> str:
    """C for an expression over arguments."""
    names = {argument.name for argument in family.arguments}
    return re.sub(r"[A-Za-z_]\w*", lambda m: f"a->{m[0]}" if m[0] in names else m[0], text)


def write_struct(family: Family) -> str:
    """The arguments, each of 8 bytes."""
    fields = "".join(
        f"\t{'char *' if argument.is_pointer else 'int64_t '}{argument.name};\n"
        for argument in family.arguments
    )
    return f"struct args_{family.name} {{\n{fields}}};\n\n"


def checks_of(family: Family, argument: Argument) -> list[str]:
    """C conditions, each of which makes a call invalid."""
    value = f"a->{argument.name}"
    match argument.kind:
        case "size" | "batch":
            return [f"{value} < 0"]
        case "inc":
            return [f"!{value}"]
        case "op":
            return [f"!bl_is_op({value})"]
        case "opsym":
            return [f"!bl_is_op({value}) || ({value} == BL_OP_C && bl_is_complex(f->element))"]
        case "opherm":
            return [f"{value} != BL_OP_N && {value} != BL_OP_C"]
        case "fill" | "diag" | "side":
            return [f"{value} != 0 && {value} != 1"]
        case "in" | "inout" | "out" | "host":
            return [f"!{value}"]
        case "mat" | "mats":
            rows, _, ld = (expression(family, part) for part in argument.shape[:3])
            return [f"bl_short({ld}, {rows})"]
        case _:
            return []


def write_check(family: Family) -> str:
    """What the documentation calls an invalid value, in the order of the arguments."""
    conditions = [c for argument in family.arguments for c in checks_of(family, argument)]
    body = "".join(
        f"\tif ({condition})\n\t\treturn BL_INVALID_VALUE;\n" for condition in conditions
    )
    return (
        f"static int check_{family.name}(const void *args, const struct function *f)\n{{\n"
        f"\tconst struct args_{family.name} *a = args;\n\n\t(void)f;\n\t(void)a;\n{body}\treturn BL_SUCCESS;\n}}\n\n"
    )


def find_index(family: Family, name: str) -> int:
    """The place of an argument; -1 for none."""
    return next((i for i, argument in enumerate(family.arguments) if argument.name == name), -1)


def write_operand(family: Family, argument: Argument) -> str:
    """One operand's place and shape."""
    shape = [expression(family, part) for part in argument.shape]
    kind = argument.kind.rstrip("s") if argument.kind != "ints" else "ints"
    if kind == "ints":
        parts = {"rows": shape[0], "cols": "1", "ld": shape[0], "element": "BL_R_32I"}
    elif kind == "tri":
        parts = {"rows": f"{shape[0]} * ({shape[0]} + 1) / 2", "cols": "1", "ld": "1"}
    elif kind == "vec":
        parts = {"rows": "1", "cols": shape[0], "ld": f"bl_distance({shape[1]})"}
    else:
        parts = {"rows": shape[0], "cols": shape[1], "ld": shape[2]}
    strided = {"vec": 2, "mat": 3}.get(kind, 9)
    if len(shape) > strided:
        parts["stride"] = shape[strided]
    element = {"": "f->element", "result": "f->result"}.get(
        argument.element, f"(int)a->{argument.element}"
    )
    parts.setdefault("element", element)
    parts["arg"] = str(find_index(family, argument.name))
    parts["unless"] = str(find_index(family, argument.unless))
    parts["array"] = "true" if argument.kind in {"vecs", "mats"} else "false"
    inner = ", ".join(f".{key} = {value}" for key, value in parts.items())
    return f"\t*o++ = (struct operand){{ {inner} }};\n"


def write_operands(family: Family) -> str:
    """The memory on the device that a call names."""
    body = "".join(write_operand(family, a) for a in family.arguments if a.kind in DEVICE)
    return (
        f"static struct operand *operands_{family.name}(const void *args, const struct function *f,\n"
        "\t\tstruct operand *o)\n{\n"
        f"\tconst struct args_{family.name} *a = args;\n\n\t(void)a;\n\t(void)f;\n{body}\treturn o;\n}}\n\n"
    )


def scalar_type(family: Family, argument: Argument) -> str:
    """The type of a scalar as a C initialiser: fixed, or the argument that has it."""
    if argument.kind not in SCALAR:
        return ""
    fixed = {
        "T": "SCALAR_LETTER",
        "f32": "SCALAR_F32",
        "f64": "SCALAR_F64",
        "int": "SCALAR_INT",
        "scale": "SCALAR_COMPUTE",
    }
    five = ", .count = 5" if argument.five else ""
    if argument.type.startswith("@"):
        return f", SCALAR_ARGUMENT, {find_index(family, argument.type[1:])}{five}"
    return f", {fixed[argument.type]}{five}"


def write_family(family: Family) -> str:
    """The table's row."""
    kinds = {"vec", "mat", "tri", "ints", "vecs", "mats"}
    arguments = "".join(
        f"\t\t{{ ARG_{'DEVICE' if a.kind in kinds else a.kind.upper()}{scalar_type(family, a)} }},\n"
        for a in family.arguments
    )
    batch = next((i for i, a in enumerate(family.arguments) if a.kind == "batch"), -1)
    return (
        f"const struct family family_{family.name} = {{\n\t.n = {len(family.arguments)},\n\t.batch = {batch},\n"
        f"\t.check = check_{family.name},\n\t.operands = operands_{family.name},\n\t.run = {family.run},\n"
        f"\t.args = {{\n{arguments}\t}},\n}};\n\n"
    )


def letters_of(name: str) -> tuple[str, str, str]:
    """The types of a function's scalars, of its elements and of its result."""
    if match := re.match(r"([HT])S([HTS])gemv", name):
        return LETTERS["S"], LETTERS[match[1]], LETTERS[match[2]]
    if match := re.match(r"I([sdcz])am", name):
        return (LETTERS[match[1].upper()],) * 3
    if match := re.match(r"(?:Sc|Dz)(?:nrm2|asum)", name):
        element = "C" if name.startswith("Sc") else "Z"
        return LETTERS[REAL[element]], LETTERS[element], LETTERS[REAL[element]]
    letter = name[0] if (name[0] in LETTERS and name[1].islower()) or name[1:2].isdigit() else "S"
    return (LETTERS.get(letter, LETTERS["S"]),) * 3


def routine_of(name: str) -> str:
    """The routine of BLAS that does the same."""
    plain = (
        re.sub(r"(_v2|StridedBatched|Batched|Ex)+$", "", name)
        .replace("gemm3m", "gemm")
        .replace("syrk3m", "syrk")
    )
    return plain.lower().replace("herk3m", "herk") + "_"


def write_function(family: Family, name: str, wide: bool) -> str:
    """One exported function."""
    integer = "int64_t" if wide else "int"
    types = dict.fromkeys(INTEGERS, integer) | {"stride": "long long"}
    parameters, values = ["void *handle"], []
    for argument in family.arguments:
        if argument.is_pointer:
            parameters.append(f"void *{argument.name}")
            values.append(f"(int64_t){argument.name}")
        else:
            parameters.append(f"{types.get(argument.kind, 'int')} {argument.name}")
            values.append(argument.name)
    export = f"cublas{name}{'_64' if wide else ''}"
    signature = f"BL_EXPORT int {export}({', '.join(parameters)})"
    return (
        f"{signature};\n{signature}\n{{\n\tconst int64_t args[] = {{ {', '.join(values)} }};\n\n"
        f"\treturn bl_call(handle, &function_{name}, {'true' if wide else 'false'}, args);\n}}\n\n"
    )


def write_functions(family: Family) -> str:
    """The exported functions of a family."""
    text = ""
    for name, twin in family.functions:
        types = ", ".join(letters_of(name))
        text += (
            f'static const struct function function_{name} = {{ &family_{family.name}, "{routine_of(name)}", '
            f"{types} }};\n"
        )
        for wide in (False, True) if twin else (False,):
            text += write_function(family, name, wide)
    return text


def write_refused(text: str, library: str) -> str:
    """Functions of a library that are there by name."""
    current, functions = "", []
    for line in text.splitlines():
        if line.startswith("cublas"):
            current = line.rstrip(":")
        elif line.startswith("  ") and current == library:
            functions += [
                f"BL_EXPORT int {n}(void);\nint {n}(void)\n{{\n\treturn BL_NOT_SUPPORTED;\n}}\n\n"
                for n in line.split()
            ]
    return f'{HEAD}#include "blas.h"\n\n{"".join(functions)}'


def main(source: Path, refused: Path, out: Path) -> None:
    """Write all files."""
    for library in ("cublas", "cublasLt"):
        (out / f"refused_{library}.c").write_text(write_refused(refused.read_text(), library))
    families = read_families(source.read_text())
    structs = "".join(map(write_struct, families))
    externs = "".join(f"extern const struct family family_{family.name};\n" for family in families)
    (out / "families.h").write_text(
        f"{HEAD}#pragma once\n#include <stdint.h>\n\n{structs}{externs}"
    )
    tables = "".join(write_check(f) + write_operands(f) + write_family(f) for f in families)
    (out / "families.c").write_text(
        f'{HEAD}#include "tables.h"\n#include "families.h"\n#include "runs.h"\n\n{tables}'
    )
    exports = "".join(map(write_functions, families))
    (out / "exports.c").write_text(f'{HEAD}#include "tables.h"\n#include "families.h"\n\n{exports}')


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
