"""cuDNN: reads ``spec/cudnn.yaml`` and writes what both ends know of the backend interface's attributes, and both ends
of the classic interface's functions (docs/wire-format.md, "Mathematics libraries")."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from vgpumgr.virtio.codegen.model import SpecError, Where

#: cudnnBackendAttributeType_t
TYPES = {
    "HANDLE": 0,
    "DATA_TYPE": 1,
    "BOOLEAN": 2,
    "INT64": 3,
    "FLOAT": 4,
    "DOUBLE": 5,
    "CONVOLUTION_MODE": 7,
    "HEUR_MODE": 8,
    "KNOB_TYPE": 9,
    "NAN_PROPOGATION": 10,
    "NUMERICAL_NOTE": 11,
    "LAYOUT_TYPE": 12,
    "POINTWISE_MODE": 14,
    "BACKEND_DESCRIPTOR": 15,
    "GENSTATS_MODE": 16,
    "BN_FINALIZE_STATS_MODE": 17,
    "REDUCTION_OPERATOR_TYPE": 18,
    "BEHAVIOR_NOTE": 19,
    "TENSOR_REORDERING_MODE": 20,
    "RESAMPLE_MODE": 21,
    "PADDING_MODE": 22,
    "INT32": 23,
    "SIGNAL_MODE": 25,
    "FRACTION": 26,
    "NORM_MODE": 27,
    "NORM_FWD_PHASE": 28,
    "RNG_DISTRIBUTION": 29,
    "MOE_GROUPED_MATMUL_MODE": 30,
    "RESHAPE_MODE": 31,
    "OPERATIONGRAPH_MODE": 32,
}
#: C types of the classic functions' arguments
KINDS = {
    "int": "int ",
    "size": "size_t ",
    "double": "double ",
    "device": "void *",
    "in": "const void *",
    "value": "const void *",
    "out": "size_t *",
    "number": "int *",
    "wanted": "int ",
    "perfs": "void *",
    "tensor": "void *",
    "filter": "void *",
    "convolution": "void *",
    "pooling": "void *",
    "activation": "void *",
    "optensor": "void *",
    "reduction": "void *",
    "lrn": "void *",
    "dropout": "void *",
}
ATTRIBUTE = re.compile(r"^(\d+) (\w+) ([A-Z0-9_|]+)(?: \*(\d+))?(?: -> (\w+))?( get)?$")
#: of a reference: any operation; none
ANY_OPERATION, NO_TARGET = 254, 255


@dataclass(frozen=True, slots=True)
class Attribute:
    """One of a descriptor of the backend interface."""

    number: int
    name: str
    types: tuple[int, ...]
    count: int
    target: str
    get: bool


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A kind of descriptor of the backend interface."""

    name: str
    id: int
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class DnnFunction:
    """A function of the classic interface. ``arguments``: kinds and names."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    has_handle: bool = True

    @property
    def id(self) -> int:
        """What it is called on the wire: changes with everything that both ends must know of it."""
        text = f"cudnn {self.name} {self.has_handle} " + ", ".join(
            f"{kind} {name}" for kind, name in self.arguments
        )
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        return number | 1 << 63  # no number of dnn_wire.h

    @property
    def answers(self) -> bool:
        """Whether it gives a value back: then its caller waits."""
        return any(kind in ("out", "number", "perfs") for kind, _ in self.arguments)


def _attribute(text: str, where: Where) -> Attribute:
    m = ATTRIBUTE.match(text)
    if not m:
        raise SpecError(where, f"cannot read the attribute '{text}'")
    number, name, types, count, target, get = m.groups()
    if unknown := [t for t in types.split("|") if t not in TYPES]:
        raise SpecError(where, f"'{unknown[0]}' is no type of an attribute")
    numbers = tuple(TYPES[t] for t in types.split("|"))
    if (TYPES["BACKEND_DESCRIPTOR"] in numbers) != bool(target):
        raise SpecError(where, f"'{name}' refers to descriptors of no kind")
    return Attribute(int(number), name, numbers, int(count or 1), target or "", bool(get))


def parse_descriptors(path: Path) -> tuple[Descriptor, ...]:
    """The backend interface's, by number. Raises :class:`SpecError`."""
    where = Where(path.name, 1)
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))["descriptors"]
    found = tuple(
        Descriptor(row["name"], row["id"], tuple(_attribute(a, where) for a in row["attributes"]))
        for row in rows
    )
    names = {d.name for d in found} | {"OPERATION", ""}
    numbers = [a.number for d in found for a in d.attributes]
    if len(set(numbers)) != len(numbers) or any(
        a.target not in names for d in found for a in d.attributes
    ):
        raise SpecError(where, "an attribute is there twice, or refers to what is not there")
    return tuple(sorted(found, key=lambda d: d.id))


def parse_functions(path: Path) -> tuple[DnnFunction, ...]:
    """The classic interface's, in the order of their ids. Raises :class:`SpecError`."""
    where = Where(path.name, 1)
    found = []
    for row in yaml.safe_load(path.read_text(encoding="utf-8"))["functions"]:
        arguments = tuple(
            (kind, name) for kind, name in (a.split() for a in row["args"].split(","))
        )
        if unknown := [kind for kind, _ in arguments if kind not in KINDS]:
            raise SpecError(where, f"'{unknown[0]}' is no kind of argument")
        kinds = [kind for kind, _ in arguments]
        if kinds.count("wanted") != kinds.count("perfs"):
            raise SpecError(where, f"'{row['name']}' has results and no number of them")
        found.append(DnnFunction(f"cudnn{row['name']}", arguments, row.get("handle", True)))
    return tuple(sorted(found, key=lambda f: f.id))


def implemented(path: Path) -> set[str]:
    """The names that the guest has more than a refusal of."""
    hand: str = yaml.safe_load(path.read_text(encoding="utf-8"))["hand"]
    return {f"cudnn{name}" for name in hand.split()} | {f.name for f in parse_functions(path)}


def _banner() -> str:
    return (
        "/* SPDX-License-Identifier: Apache-2.0 */\n"
        "/* Generated by vgpumgr.virtio.codegen from cudnn.yaml; change that, not this. */\n"
    )


def _parameters(f: DnnFunction) -> str:
    handle = ["void *handle"] if f.has_handle else []
    return ", ".join([*handle, *(f"{KINDS[kind]}{name}" for kind, name in f.arguments)])


def emit_header(descriptors: tuple[Descriptor, ...], functions: tuple[DnnFunction, ...]) -> str:
    """``vg_dnn.h``"""
    out = [
        _banner(),
        "#ifndef VGPUMGR_DNN_H\n#define VGPUMGR_DNN_H\n",
        "#include <stddef.h>\n#include <stdint.h>\n",
    ]
    out += [f"int {f.name}({_parameters(f)});" for f in sorted(functions, key=lambda f: f.name)]
    count = sum(len(d.attributes) for d in descriptors)
    out.append(f"\nenum {{ DNN_FUNCTIONS = {len(functions)}, DNN_ATTRIBUTES = {count} }};")
    out.append("\n/* Descriptors of the backend interface. */\nenum {")
    out += [f"\tDNN_{d.name} = {d.id}," for d in descriptors]
    out.append("};\n\n/* Types of attributes. */\nenum {")
    out += [f"\tDNN_TYPE_{name} = {number}," for name, number in TYPES.items()]
    out.append("};\n\n/* Attributes. */\nenum {")
    out += [f"\tDNN_{a.name} = {a.number}," for d in descriptors for a in d.attributes]
    masks = {
        "descriptors": sum(1 << d.id for d in descriptors),
        "operations": sum(1 << d.id for d in descriptors if d.name.startswith("OPERATION_")),
        "types": sum(1 << number for number in TYPES.values()),
    }
    out.append(
        "};\n\n/* A bit for each descriptor, for each that is an operation, and for each type. */"
    )
    out += [f"static const uint64_t dnn_{name} = {mask:#x};" for name, mask in masks.items()]
    return "\n".join([*out, "\n#endif"]) + "\n"


def _entry(descriptors: tuple[Descriptor, ...], d: Descriptor, a: Attribute) -> str:
    types = sum(1 << t for t in a.types)
    target = next((o.id for o in descriptors if o.name == a.target), NO_TARGET)
    target = ANY_OPERATION if a.target == "OPERATION" else target
    return (
        f"\t{{ {a.number}, {a.count}, {d.id}, {target}, {int(a.get)}, {types:#x} }}, /* {a.name} */"
    )


def emit_table(descriptors: tuple[Descriptor, ...], functions: tuple[DnnFunction, ...]) -> str:
    """``vg_dnn_table.c``"""
    out = [
        _banner(),
        '#include "dnn_wire.h"\n',
        "const struct dnn_attribute dnn_attributes[DNN_ATTRIBUTES] = {",
    ]
    rows = [(a.number, _entry(descriptors, d, a)) for d in descriptors for a in d.attributes]
    out += [text for _, text in sorted(rows)]
    out.append("};\n\nconst struct dnn_function dnn_functions[DNN_FUNCTIONS] = {")
    for f in functions:
        kinds = ", ".join(f"DNN_{kind.upper()}_ARGUMENT" for kind, _ in f.arguments)
        out.append(f'\t{{ {f.id:#018x}, "{f.name}", {len(f.arguments)}, {{ {kinds} }} }},')
    return "\n".join([*out, "};"]) + "\n"


def _word(kind: str, name: str) -> str:
    if kind == "double":
        return f"dnn_bits({name})"
    return f"(uint64_t){name}" if kind in ("int", "size", "wanted") else f"(uintptr_t){name}"


def emit_guest(functions: tuple[DnnFunction, ...]) -> str:
    """``vg_dnn_guest.c``"""
    out = [_banner(), '#include "dnn.h"\n']
    for place, f in enumerate(functions):
        words = ", ".join(_word(kind, name) for kind, name in f.arguments)
        handle = "handle" if f.has_handle else "dnn_any_handle(NULL)"
        out.append(
            f"DNN_API int {f.name}({_parameters(f)})\n{{\n"
            f"\tconst uint64_t words[] = {{ {words} }};\n\n"
            f"\treturn dnn_call({handle}, &dnn_functions[{place}], words);\n}}\n"
        )
    return "\n".join(out)


def _cast(place: int, kind: str) -> str:
    if kind == "double":
        return f"dnn_double(w[{place}])"
    return f"({KINDS[kind].strip()})w[{place}]"


def emit_calls(functions: tuple[DnnFunction, ...]) -> str:
    """``vg_dnn_calls.c``"""
    out = [_banner(), '#include "dnn_calls.h"\n#include "dnn_wire.h"\n']
    for f in functions:
        words = ", ".join(_cast(i, kind) for i, (kind, _) in enumerate(f.arguments))
        words = f"handle, {words}" if f.has_handle else words
        unused = "" if f.has_handle else "\t(void)handle;\n"
        out.append(
            f"static int call_{f.name}(void *function, void *handle, const uint64_t *w)\n{{\n"
            f"{unused}\treturn ((__typeof__({f.name}) *)function)({words});\n}}\n"
        )
    out.append("dnn_caller *const dnn_callers[] = {")
    out += [f"\tcall_{f.name}," for f in functions]
    return "\n".join([*out, "};"]) + "\n"


def dnn_outputs(path: Path, native: str) -> dict[str, bytes]:
    """Every committed output by its path in the source tree."""
    descriptors, functions = parse_descriptors(path), parse_functions(path)
    files = {
        f"{native}/vg_dnn.h": emit_header(descriptors, functions),
        f"{native}/vg_dnn_table.c": emit_table(descriptors, functions),
        f"{native}/vg_dnn_guest.c": emit_guest(functions),
        f"{native}/vg_dnn_calls.c": emit_calls(functions),
    }
    return {name: text.encode() for name, text in files.items()}
