"""Reads a description: YAML to :mod:`model`, every complaint with file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from vgpumgr.virtio.codegen.model import (
    BLOBS,
    CallClass,
    Field,
    Function,
    HandleKind,
    Kind,
    Operation,
    Param,
    Range,
    Spec,
    SpecError,
    Where,
)

PROTOTYPE = re.compile(r"^CUresult (cu\w+)\((.*)\)$")
RANGE = re.compile(r"^range (\w+)(?: \* (\d+))?$")
MOST = re.compile(r"^at most (\d+)$")
ROWS = re.compile(r"^rows (\w+) \* (\d+) (\w+) (\w+)$")
OPERATION_KEYS = {
    "id", "name", "class", "context", "request", "reply", "bulk", "blocking", "reply_always", "after_error", "worker",
    "revision", "work",
}  # fmt: skip
FUNCTION_KEYS = {
    "c", "id", "class", "context", "args", "bulk", "blocking", "after_error", "worker", "guest", "via", "hand", "uses",
    "variants", "revision", "work",
}  # fmt: skip


class Node:
    """A YAML node that knows its place; the accessors raise :class:`SpecError` where the shape is wrong."""

    def __init__(self, node: yaml.Node, file: str) -> None:
        self.node = node
        self.file = file
        self.where = Where(file, node.start_mark.line + 1)

    def fail(self, message: str) -> SpecError:
        return SpecError(self.where, message)

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.fail("a plain value is expected here")
        return str(self.node.value)

    def number(self) -> int:
        try:
            return int(self.text(), 0)
        except ValueError:
            raise self.fail(f"a number is expected, not '{self.text()}'") from None

    def flag(self) -> bool:
        if self.text() not in ("true", "false"):
            raise self.fail("true or false is expected")
        return self.text() == "true"

    def items(self) -> Iterator[Node]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.fail("a list is expected here")
        return (Node(n, self.file) for n in self.node.value)

    def pairs(self) -> dict[str, Node]:
        if not isinstance(self.node, yaml.MappingNode):
            raise self.fail("a mapping is expected here")
        found: dict[str, Node] = {}
        for key, value in self.node.value:
            name = Node(key, self.file)
            if name.text() in found:
                raise name.fail(f"'{name.text()}' is given twice")
            found[name.text()] = Node(value, self.file)
        return found

    def fields(self, allowed: set[str], required: tuple[str, ...]) -> dict[str, Node]:
        found = self.pairs()
        for name, value in found.items():
            if name not in allowed:
                raise value.fail(f"unknown key '{name}'")
        for name in required:
            if name not in found:
                raise self.fail(f"'{name}' is missing")
        return found


def parse(path: Path, name: str | None = None) -> Spec:
    """The description in the file at ``path``; ``name`` is how messages call it (default: the file's name)."""
    file = name or path.name
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise SpecError(Where(file, line), f"not YAML: {error.problem}") from error
    if root is None:
        raise SpecError(Where(file, 1), "the description is empty")
    keys = {
        "schema",
        "revision",
        "header",
        "handles",
        "types",
        "retired",
        "operations",
        "functions",
    }
    top = Node(root, file).fields(keys, ("schema", "revision", "header", "handles", "types"))
    handles = tuple(_handle(n, v) for n, v in top["handles"].pairs().items())
    types = {n: _scalar(v) for n, v in top["types"].pairs().items()}
    operations = [_operation(n) for n in _list(top, "operations")]
    functions = []
    for node in _list(top, "functions"):
        function, operation = _function(node, types, {h.c_type: h.name for h in handles})
        functions.append(function)
        if operation:
            operations.append(operation)
    return Spec(
        file=file,
        schema=top["schema"].text(),
        revision=top["revision"].number(),
        header=top["header"].text(),
        handles=handles,
        types=types,
        retired=tuple(n.number() for n in _list(top, "retired")),
        operations=tuple(operations),
        functions=tuple(functions),
    )


def _list(top: dict[str, Node], key: str) -> list[Node]:
    return list(top[key].items()) if key in top else []


def _handle(name: str, node: Node) -> HandleKind:
    f = node.fields({"tag", "c", "cap"}, ("tag", "c", "cap"))
    return HandleKind(name, f["tag"].number(), f["c"].text(), f["cap"].number(), node.where)


def _scalar(node: Node) -> Kind:
    if node.text() not in ("u64", "u32", "i32", "f32"):
        raise node.fail(f"'{node.text()}' is no scalar kind (u64, u32, i32, f32)")
    return Kind(node.text())


def _class(node: Node) -> CallClass:
    try:
        return CallClass(node.text())
    except ValueError:
        raise node.fail(f"'{node.text()}' is no class (local, quiet, cached, sync)") from None


def _field(node: Node) -> Field:
    pairs = node.pairs()
    if len(pairs) != 1:
        raise node.fail("a field is one 'name: kind'")
    ((name, value),) = pairs.items()
    kind, *rest = value.text().split()
    try:
        found = Kind(kind)
    except ValueError:
        raise value.fail(f"'{kind}' is no kind of field") from None
    if found in BLOBS:
        if len(rest) != 1 or not rest[0].isdigit():
            raise value.fail(f"{kind} needs its cap in bytes")
        return Field(name, found, value.where, cap=int(rest[0]))
    if found in (Kind.HANDLE, Kind.MINT):
        if len(rest) != 1:
            raise value.fail(f"{kind} needs a kind of handle")
        return Field(name, found, value.where, handle=rest[0])
    if rest:
        raise value.fail(f"{kind} takes nothing after it")
    return Field(name, found, value.where)


def _choice(found: dict[str, Node], key: str, choices: tuple[str, ...]) -> str:
    if key not in found:
        return choices[0]
    if found[key].text() not in choices:
        raise found[key].fail(f"{key} is one of {', '.join(choices)}")
    return found[key].text()


def _make(
    node: Node,
    found: dict[str, Node],
    name: str,
    request: list[Field],
    reply: list[Field],
    ranges: list[Range],
) -> Operation:
    if "class" not in found:
        raise node.fail(f"'{name}' has no class (local, quiet, cached, sync)")
    return Operation(
        name=name,
        id=found["id"].number(),
        call_class=_class(found["class"]),
        request=tuple(request),
        reply=tuple(reply),
        where=node.where,
        context=_choice(found, "context", ("none", "current")) == "current",
        bulk=_choice(found, "bulk", ("none", "in", "out")),
        blocking="blocking" in found and found["blocking"].flag(),
        work="work" in found and found["work"].flag(),
        reply_always="reply_always" in found and found["reply_always"].flag(),
        run_after_error=_choice(found, "after_error", ("drop", "run")) == "run",
        worker_by_hand=_choice(found, "worker", ("generated", "hand")) == "hand",
        ranges=tuple(ranges),
        revision=found["revision"].number() if "revision" in found else 1,
    )


def _operation(node: Node) -> Operation:
    found = node.fields(OPERATION_KEYS, ("id", "name"))
    request = [_field(n) for n in _list(found, "request")]
    reply = [_field(n) for n in _list(found, "reply")]
    return _make(node, found, found["name"].text(), request, reply, [])


def _params(node: Node, text: str) -> tuple[Param, ...]:
    if text.strip() in ("", "void"):
        return ()
    params = []
    for part in text.split(","):
        m = re.match(r"^\s*(.*?[\s*])(\w+)\s*$", part)
        if not m:
            raise node.fail(f"cannot read the parameter '{part.strip()}'")
        params.append(Param(m[2], re.sub(r"\s*\*", "*", m[1].strip())))
    return tuple(params)


def _function(
    node: Node, types: dict[str, Kind], handles: dict[str, str]
) -> tuple[Function, Operation | None]:
    found = node.fields(FUNCTION_KEYS, ("c",))
    m = PROTOTYPE.match(found["c"].text())
    if not m:
        raise found["c"].fail("'c' is a prototype as in cuda.h: CUresult cuName(...)")
    name, params = m[1], _params(found["c"], m[2])
    variants = tuple(n.text() for n in _list(found, "variants"))
    for variant in variants:
        if variant not in ("ptds", "ptsz"):
            raise found["variants"].fail(f"'{variant}' is no variant (ptds, ptsz)")
    ways = [k for k in ("id", "via", "hand") if k in found]
    if len(ways) != 1:
        raise node.fail(f"'{name}' needs exactly one of id, via, hand")
    common = {"name": name, "params": params, "where": node.where, "variants": variants}
    if ways == ["via"]:
        return Function(**common, via=found["via"].text()), None  # type: ignore[arg-type]
    if ways == ["hand"]:
        uses = tuple(n.text() for n in _list(found, "uses"))
        if not uses and ("class" not in found or _class(found["class"]) is not CallClass.LOCAL):
            raise node.fail(
                f"'{name}' has no class: name the operations it uses, or 'class: local'"
            )
        return Function(**common, hand=found["hand"].text(), uses=uses), None  # type: ignore[arg-type]
    args = found["args"].pairs() if "args" in found else {}
    for arg, value in args.items():
        if arg not in {p.name for p in params}:
            raise value.fail(f"'{name}' has no parameter '{arg}'")
    request, reply, ranges = _from_params(node, name, params, args, types, handles)
    operation = _make(node, found, name, request, reply, ranges)
    guest = _choice(found, "guest", ("generated", "hand")) == "generated"
    outs = frozenset(a for a, v in args.items() if v.text() == "out")
    most = {a: int(m[1]) for a, v in args.items() if (m := MOST.match(v.text()))}
    more = {"outs": outs, "most": tuple(most.items()), "generated_guest": guest}
    function = Function(**common, operation=name, **more)  # type: ignore[arg-type]
    return function, operation


def _from_params(
    node: Node,
    name: str,
    params: tuple[Param, ...],
    args: dict[str, Node],
    types: dict[str, Kind],
    handles: dict[str, str],
) -> tuple[list[Field], list[Field], list[Range]]:
    request: list[Field] = []
    reply: list[Field] = []
    ranges: list[Range] = []
    for p in params:
        note = args[p.name].text() if p.name in args else ""
        where = args[p.name].where if p.name in args else node.where
        if note == "out" or note.startswith("mint "):
            if not p.pointee:
                raise SpecError(
                    where, f"'{p.name}' of {name} is no pointer and cannot be {note.split()[0]}"
                )
            if note != "out":
                request.append(Field(p.name, Kind.MINT, where, handle=note.split()[1]))
            elif p.pointee in types:
                reply.append(Field(p.name, types[p.pointee], where))
            else:
                raise SpecError(where, f"type '{p.pointee}' of {name} is not in 'types'")
            continue
        if p.pointee:
            raise SpecError(
                where, f"'{p.name}' of {name} is a pointer: its direction must be given"
            )
        if p.c_type in handles:
            request.append(Field(p.name, Kind.HANDLE, where, handle=handles[p.c_type]))
        elif p.c_type in types:
            request.append(Field(p.name, types[p.c_type], where))
        else:
            raise SpecError(where, f"type '{p.c_type}' of {name} is not in 'types'")
        if note and not MOST.match(note):
            ranges.append(_range(p.name, note, where, {q.name for q in params}))
    return request, reply, ranges


def _range(param: str, note: str, where: Where, names: set[str]) -> Range:
    if m := RANGE.match(note):
        found = Range(param, m[1], int(m[2] or 1))
    elif m := ROWS.match(note):
        found = Range(param, m[1], int(m[2]), m[3], m[4])
    else:
        raise SpecError(
            where,
            f"cannot read '{note}': out, mint KIND, at most N, range COUNT [* N], rows WIDTH * N ROWS PITCH",
        )
    for used in (found.count, found.rows, found.pitch):
        if used and used not in names:
            raise SpecError(where, f"'{used}' in '{note}' is no parameter")
    return found
