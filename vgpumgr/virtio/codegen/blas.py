"""cuBLAS, cuSOLVER and cuSPARSE by families: reads ``spec/cublas.yaml`` and the others', and writes for each library
both ends of each function, a table that both have, and the prototypes. The arguments of a call travel as 64-bit words
in the header's order, with values that are on the host behind them (docs/wire-format.md, "Mathematics libraries")."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import yaml

from vgpumgr.virtio.codegen.model import SpecError, Where

#: enumerations, and their largest value
ENUMERATIONS = {
    "op": 3, "fill": 2, "diag": 1, "side": 1, "eig": 1, "type": 255, "compute": 255, "algo": 255,
}  # fmt: skip
INTEGERS = {"int": "int", "long": "long long", "char": "signed char", "size": "size_t"}
#: bytes of what an object of cuSOLVER is set to (native/codec/blas_functions.h)
SETTINGS = {"syevj": 32, "gesvdj": 32}
#: bytes of cuSPARSE's descriptors (vgpumgr/native/sparse_rules/sparse_wire.h)
DESCRIPTORS = {"spmat": 104, "made": 104, "dnmat": 56, "dnvec": 24, "spvec": 40}
#: addresses on the device, and what of cuSOLVER and cuSPARSE has no address there
POINTERS = (
    "device", "buffer", "scratch", "params", *SETTINGS,
    "descr", "spgemm", "spsv", "spsm", "bsrsv2", "bsrsm2", *DESCRIPTORS,
)  # fmt: skip
#: bytes of a value whose type is known by its name
BYTES = {"f16": 2, "f32": 4, "f64": 8, "c32": 8, "c64": 16, "int": 4, "long": 8, "size": 8}
LETTERS = {"H": "f16", "S": "f32", "D": "f64", "C": "c32", "Z": "c64"}
#: a value's type is another argument's to say: 0x80 and its place; or that of a matrix product's scalars
BY_ARGUMENT, BY_SCALE = 0x80, 0x7F
DIRECTIONS = ("in", "inout", "out", "host", "exchange")
#: what a family does beside what its arguments say (native/codec/blas_functions.h)
ROLES = ("works", "measures", "prepares")
ARGUMENT = re.compile(r"^(\w+)(?: (@?\w+)(\*5)?)? (\w+)$")


@dataclass(frozen=True, slots=True)
class Library:
    """``name``: of what is made of it in C. ``prefix``: of its functions. ``wire``: what their numbers are made of.
    ``results``: what the guest's library does with a function under `results`.
    """

    name: str
    prefix: str
    wire: str
    results: str = "call"


BLAS = Library("blas", "cublas", "cublas")
SOLVER = Library("solver", "cusolverDn", "cusolver")
SPARSE = Library("sparse", "cusparse", "cusparse", "wait")
#: parts of a description; of the twins there are two of each, and what is set has no caller of its own in the guest
SECTIONS = ("twins", "sizes", "plain", "results", "state")


@dataclass(frozen=True, slots=True)
class Argument:
    """``kind``: as in the description. ``size``: bytes of a value on the host, or whose say they are."""

    kind: str
    name: str
    size: int = 0
    count: int = 1

    @property
    def c_type(self) -> str:
        """The parameter's type; pointers are without the type behind them, enumerations are integers."""
        if self.kind in INTEGERS:
            return f"{INTEGERS[self.kind]} "
        if self.kind in ENUMERATIONS:
            return "int "
        return "const void *" if self.kind == "in" else "void *"


@dataclass(frozen=True, slots=True)
class BlasFunction:
    """A function that the guest's library has and the worker calls in the host's."""

    name: str
    arguments: tuple[Argument, ...]
    #: under `state` it sets a handle: the guest's library has it by hand
    section: str = "plain"
    library: Library = BLAS
    #: as in the description; by its section where that says none
    role: str = "works"

    @property
    def state(self) -> bool:
        """Whether it sets a handle."""
        return self.section == "state"

    @property
    def id(self) -> int:
        """What it is called on the wire: changes with everything that both ends must know of it."""
        text = f"{self.library.wire} {self.name} " + ", ".join(
            f"{a.kind} {a.name} {a.size} {a.count}" for a in self.arguments
        )
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    @property
    def answers(self) -> bool:
        """Whether it gives a value back: then its caller waits."""
        return any(a.kind in ("inout", "out", "host", "exchange", "made") for a in self.arguments)


def _size(word: str, letter: str, names: list[str], where: Where) -> int:
    if word == "scale":
        return BY_SCALE
    if word.startswith("@"):
        if word[1:] not in names:
            raise SpecError(where, f"there is no argument '{word[1:]}'")
        return BY_ARGUMENT | names.index(word[1:])
    word = LETTERS.get(letter, "") if word == "T" else word
    if word not in BYTES:
        raise SpecError(where, f"'{word}' is no type of a value")
    return BYTES[word]


def _argument(text: str, function: str, names: list[str], where: Where) -> Argument:
    m = ARGUMENT.match(text)
    if not m:
        raise SpecError(where, f"cannot read the argument '{text}'")
    kind, word, five, name = m.groups()
    if kind in DIRECTIONS and word:
        return Argument(kind, name, _size(word, function[0], names, where), 5 if five else 1)
    if word or (kind not in POINTERS and kind not in ENUMERATIONS and kind not in INTEGERS):
        raise SpecError(where, f"'{kind}' is no kind of argument")
    return Argument(kind, name, (SETTINGS | DESCRIPTORS).get(kind, 0))


def _widen(a: Argument) -> Argument:
    if a.kind == "int":
        return Argument("long", a.name)
    return Argument(a.kind, a.name, 8, a.count) if a.kind == "out" and a.size == 4 else a


def _twin(f: BlasFunction) -> BlasFunction:
    index = re.match(r"cublasI(?!\w*Batched)", f.name) is not None
    widened = (
        _widen(a) if a.kind == "int" or (index and a.name == "result") else a for a in f.arguments
    )
    return BlasFunction(f"{f.name}_64", tuple(widened))


def _without_settings(a: Argument) -> Argument:
    return Argument(a.kind, a.name) if a.kind in SETTINGS else a


def parse_blas(path: Path, library: Library = BLAS) -> tuple[BlasFunction, ...]:
    """All functions, those of 64-bit integers too, in the order of their ids. Raises :class:`SpecError`."""
    where = Where(path.name, 1)
    root = yaml.safe_load(path.read_text(encoding="utf-8"))
    found: list[BlasFunction] = []
    for section in SECTIONS:
        for family in root.get(section, ()):
            role = family.get("role", "measures" if section == "sizes" else "works")
            if role not in ROLES:
                raise SpecError(where, f"'{role}' is no role of a function")
            parts = [p.strip() for p in family["args"].split(",")]
            names = [p.split()[-1] for p in parts]
            for stem in family["names"].split():
                arguments = tuple(_argument(p, stem, names, where) for p in parts)
                if section == "results":  # what was computed with it is there already
                    arguments = tuple(_without_settings(a) for a in arguments)
                _check_scratch(arguments, where)
                function = BlasFunction(
                    f"{library.prefix}{stem}", arguments, section, library, role
                )
                found += [function, _twin(function)] if section == "twins" else [function]
    if len({f.name for f in found}) != len(found):
        raise SpecError(where, "a function is there twice")
    return tuple(sorted(found, key=lambda f: f.id))


def _check_scratch(arguments: Sequence[Argument], where: Where) -> None:
    """A work area on the host is as long as the argument behind it says."""
    for argument, size in zip_longest(arguments, arguments[1:]):
        if argument.kind == "scratch" and (size is None or size.kind != "size"):
            raise SpecError(where, "a work area on the host needs its size behind it")


def implemented(path: Path) -> dict[str, set[str]]:
    """By library: the names that the guest has more than a refusal of."""
    hand = yaml.safe_load(path.read_text(encoding="utf-8"))["hand"]
    found = {
        library: {f"{library}{name}" for name in names.split()} for library, names in hand.items()
    }
    found["cublas"] |= {f.name for f in parse_blas(path)}
    return found


def implemented_by(path: Path, library: Library) -> set[str]:
    """The names of cuSOLVER or cuSPARSE that the guest has more than a refusal of."""
    hand: str = yaml.safe_load(path.read_text(encoding="utf-8"))["hand"]
    return {f"{library.wire}{n}" for n in hand.split()} | {
        f.name for f in parse_blas(path, library)
    }


def _banner(library: Library) -> str:
    return (
        "/* SPDX-License-Identifier: Apache-2.0 */\n"
        f"/* Generated by vgpumgr.virtio.codegen from {library.wire}.yaml; change that, not this. */\n"
    )


def _parameters(f: BlasFunction) -> str:
    return ", ".join(["void *handle", *(f"{a.c_type}{a.name}" for a in f.arguments)])


def emit_prototypes(library: Library, functions: tuple[BlasFunction, ...]) -> str:
    """``vg_blas.h``, and of the other libraries"""
    upper = library.name.upper()
    out = [_banner(library), f"#ifndef VGPUMGR_{upper}_H\n#define VGPUMGR_{upper}_H\n"]
    out += ["#include <stddef.h>\n"] if library is not BLAS else []
    out += [f"int {f.name}({_parameters(f)});" for f in sorted(functions, key=lambda f: f.name)]
    out.append(f"\nenum {{ {upper}_FUNCTIONS = {len(functions)} }};")
    places = [
        f"\t{upper}_{f.name.removeprefix(library.prefix).upper()} = {place},"
        for place, f in enumerate(functions)
        if f.state
    ]
    if places:
        out.append("\n/* Places in the table of what sets a handle. */\nenum {")
        out += [*places, "};"]
    return "\n".join([*out, "\n#endif"]) + "\n"


def _entry(f: BlasFunction) -> str:
    arguments = ", ".join(
        f"{{ BLAS_{a.kind.upper()}, {a.size:#x}, {a.count} }}" for a in f.arguments
    )
    return (
        f'\t{{ {f.id:#018x}, "{f.name}", BLAS_{f.role.upper()}, {len(f.arguments)}, '
        f"{{ {arguments} }} }},"
    )


def emit_table(library: Library, functions: tuple[BlasFunction, ...]) -> str:
    """``vg_blas_table.c``, and of the other libraries"""
    count = f"{library.name.upper()}_FUNCTIONS"
    out = [
        _banner(library),
        '#include "blas_functions.h"\n',
        f"const struct blas_function {library.name}_functions[{count}] = {{",
    ]
    out += [_entry(f) for f in functions]
    return "\n".join([*out, "};"]) + "\n"


def _word(a: Argument) -> str:
    if a.kind in INTEGERS or a.kind in ENUMERATIONS:
        return f"(uint64_t){a.name}"
    return f"(uintptr_t){a.name}"


def emit_guest(library: Library, functions: tuple[BlasFunction, ...]) -> str:
    """``vg_blas_guest.c``, and of the other libraries"""
    name = library.name
    out = [_banner(library), f'#include "{name}.h"\n']
    for place, f in enumerate(functions):
        if f.state:
            continue
        words = ", ".join(_word(a) for a in f.arguments)
        verb = {"sizes": "ask", "results": library.results}.get(f.section, "call")
        out.append(
            f"{name.upper()}_API int {f.name}({_parameters(f)})\n{{\n"
            f"\tconst uint64_t words[] = {{ {words} }};\n\n"
            f"\treturn {name}_{verb}(handle, &{name}_functions[{place}], words);\n}}\n"
        )
    return "\n".join(out)


def _cast(place: int, a: Argument) -> str:
    if a.kind in INTEGERS:
        return f"({INTEGERS[a.kind]})w[{place}]"
    return f"(int)w[{place}]" if a.kind in ENUMERATIONS else f"(void *)w[{place}]"


def emit_calls(library: Library, functions: tuple[BlasFunction, ...]) -> str:
    """``vg_blas_calls.c``, and of the other libraries"""
    name = library.name
    out = [_banner(library), f'#include "vg_{name}.h"\n#include "blas_calls.h"\n']
    for f in functions:
        words = ", ".join(["handle", *(_cast(i, a) for i, a in enumerate(f.arguments))])
        out.append(
            f"static int call_{f.name}(void *function, void *handle, const uint64_t *w)\n{{\n"
            f"\treturn ((__typeof__({f.name}) *)function)({words});\n}}\n"
        )
    out.append(f"blas_caller *const {name}_callers[] = {{")
    out += [f"\tcall_{f.name}," for f in functions]
    return "\n".join([*out, "};"]) + "\n"


def blas_outputs(path: Path, native: str, library: Library = BLAS) -> dict[str, bytes]:
    """Every committed output by its path in the source tree."""
    functions = parse_blas(path, library)
    files = {
        f"{native}/vg_{library.name}.h": emit_prototypes(library, functions),
        f"{native}/vg_{library.name}_table.c": emit_table(library, functions),
        f"{native}/vg_{library.name}_guest.c": emit_guest(library, functions),
        f"{native}/vg_{library.name}_calls.c": emit_calls(library, functions),
    }
    return {name: text.encode() for name, text in files.items()}
