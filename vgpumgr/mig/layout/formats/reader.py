"""YAML (and JSON, which is YAML), read strictly: every value has a type, every key is known, every error its line.

The text is not trusted: nothing is constructed, and everything is bounded before it costs anything: bytes, nodes after
aliases are followed, depth. Duplicate keys are refused. Raises LayoutFileError, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import yaml
from yaml.resolver import Resolver

from vgpumgr.errors import LayoutFileError
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.text import list_near

_INTEGER = re.compile(r"[-+]?\d{1,9}")
_SHOWN = 60
_LONGEST_LABEL = 200
_TRUE = frozenset({"true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a file: ``web.yaml:7`` and the path of keys, ``mig-configs.web[0].devices``."""

    source: str
    line: int
    path: str

    def __str__(self) -> str:
        key = f": {self.path}" if self.path else ""
        return f"{self.source}:{self.line}{key}"


@dataclass(frozen=True, slots=True)
class Value:
    """A node and where it is."""

    node: Node
    where: Where

    def error(self, what: str, why: str | None = None, hint: str | None = None) -> LayoutFileError:
        """An error that names this place."""
        return LayoutFileError(f"{self.where}: {what}", why=why, hint=hint)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.node, ListNode)

    @property
    def is_map(self) -> bool:
        """Whether it has keys."""
        return isinstance(self.node, MapNode)

    @property
    def is_null(self) -> bool:
        """Whether nothing is written after the key."""
        return isinstance(self.node, Scalar) and self.node.kind == "null"

    @property
    def is_integer(self) -> bool:
        """Whether it is a decimal number without quotes."""
        node = self.node
        return isinstance(node, Scalar) and node.kind == "int" and _is_integer(node.text)

    def read_items(self) -> list[Value]:
        """The values of a list."""
        if not isinstance(self.node, ListNode):
            raise self._wrong_type("a list")
        where = self.where
        return [
            Value(item, Where(where.source, item.line, f"{where.path}[{index}]"))
            for index, item in enumerate(self.node.items)
        ]

    def read_pairs(self) -> Iterator[tuple[str, Value]]:
        """Keys and values, whatever the keys are."""
        if not isinstance(self.node, MapNode):
            raise self._wrong_type("keys with values")
        for key, value in self.node.items:
            word = shorten(key.text)
            path = f"{self.where.path}.{word}" if self.where.path else word
            yield key.text, Value(value, Where(self.where.source, key.line, path))

    def read_keys(
        self, known: Sequence[str], required: Sequence[str] = (), *, fold: bool = False
    ) -> Mapping[str, Value]:
        """The values of known keys; unknown and missing ones are refused. ``fold``: capitals do
        not matter, as in Go's JSON.
        """
        names = {name.lower() if fold else name: name for name in known}
        found: dict[str, Value] = {}
        for key, value in self.read_pairs():
            name = names.get(key.lower() if fold else key)
            if name is None:
                raise value.error(f'unknown key "{shorten(key)}"', _offer(shorten(key), known))
            if name in found:
                raise value.error(f'key "{name}" stands twice')
            found[name] = value
        for name in required:
            if name not in found:
                raise self.error(f'key "{name}" is missing')
        return found

    def read_text(self) -> str:
        """A word, as it is written; numbers count as words."""
        if not isinstance(self.node, Scalar) or self.node.kind == "null":
            raise self._wrong_type("a word")
        return self.node.text

    def read_int(self, least: int, most: int) -> int:
        """A decimal number without quotes."""
        if not isinstance(self.node, Scalar) or not self.is_integer:
            raise self._wrong_type("a whole number")
        number = int(self.node.text)
        if not least <= number <= most:
            raise self.error(f"{number} is out of range", f"{least} to {most} is allowed")
        return number

    def read_bool(self) -> bool:
        """``true`` or ``false`` without quotes."""
        if not isinstance(self.node, Scalar) or self.node.kind != "bool":
            raise self._wrong_type("true or false")
        return self.node.text.lower() in _TRUE

    def _wrong_type(self, wanted: str) -> LayoutFileError:
        return self.error(f"expected {wanted}, found {_describe(self.node)}")


def read_root(text: str, source: str) -> Value:
    """The whole document."""
    node = parse_tree(text, source)
    return Value(node, Where(source, node.line, ""))


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and not re.match(r"[-+]?0\d", text)


def _describe(node: Node) -> str:
    if not isinstance(node, Scalar):
        return _KINDS[type(node)]
    if node.kind == "null":
        return "nothing"
    quoted = f'"{shorten(node.text)}"'
    return f"the text {quoted}" if node.kind == "str" else quoted


def shorten(text: str) -> str:
    """What was written, short enough for a message and without what a terminal would obey."""
    short = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return short if short.isprintable() else short.encode("unicode_escape").decode("ascii")


def check_label(name: str, where: Where) -> str:
    """The name of a layout, which people must be able to type. Raises LayoutFileError."""
    if not name or len(name) > _LONGEST_LABEL or not name.isprintable():
        raise LayoutFileError(
            f'{where.source}:{where.line}: "{shorten(name)}" is no name of a layout',
            why=f"it has 1 to {_LONGEST_LABEL} printable characters",
        )
    return name


def _offer(key: str, known: Sequence[str]) -> str:
    near = list_near(key.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"


MAX_BYTES = 1 << 20
_MAX_NODES = 50_000
_MAX_DEPTH = 32
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER = Resolver()
_TAGS = {
    "tag:yaml.org,2002:bool": "bool",
    "tag:yaml.org,2002:int": "int",
    "tag:yaml.org,2002:float": "float",
    "tag:yaml.org,2002:null": "null",
    "tag:yaml.org,2002:merge": "merge",
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A word: its text as written, and what YAML takes it for (``str``, ``int``, ``bool``,
    ``float``, ``null``).
    """

    line: int
    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list."""

    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    """Keys with the lines that they stand on, in the order of the file."""

    line: int
    items: tuple[tuple[Scalar, Node], ...]


Node = Scalar | ListNode | MapNode
_KINDS = {MapNode: "keys with values", ListNode: "a list"}


def parse_tree(text: str, source: str) -> Node:
    """The one document in ``text``; ``source`` is what errors call the file."""
    if len(text) > MAX_BYTES:
        raise LayoutFileError(
            f"{source}: too large for a layout file",
            why=f"more than {MAX_BYTES >> 20} MiB; a layout for a large host takes a few kB",
        )
    try:
        builder = _Builder(source, yaml.parse(text, Loader=_LOADER))
        return builder.build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source}:{mark.line + 1}" if mark else source
        words = error.problem or error.context or "malformed"
        raise LayoutFileError(f"{place}: not valid YAML", cause=shorten(str(words))) from error
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or str(error).partition("\n")[0]
        raise LayoutFileError(f"{source}: not valid YAML", cause=shorten(str(reason))) from error


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet; the key of a mapping waits for its value."""

    line: int
    is_mapping: bool
    anchor: str | None
    depth_size: int
    children: list[Node]


class _Builder:
    """Turns the parser's events into nodes without recursion."""

    def __init__(self, source: str, events: Iterator[yaml.Event]) -> None:
        self._source = source
        self._events = events
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._count = 0
        self._root: Node | None = None
        self._documents = 0

    def build(self) -> Node:
        """Reads all events."""
        for event in self._events:
            self._take(event)
        if self._root is None or (isinstance(self._root, Scalar) and self._root.kind == "null"):
            raise LayoutFileError(
                f"{self._source}: the file is empty",
                hint="docs/layouts.md has examples; vgpumgr mig layout export writes one",
            )
        return self._root

    def _take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise self._error(line, "a second document in one file", "one document is allowed")
        elif isinstance(event, yaml.ScalarEvent):
            node = Scalar(line, event.value, _classify(event))
            self._put(node, 1, event.anchor, line)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event, line)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
        elif isinstance(event, yaml.AliasEvent):
            self._follow(event.anchor, line)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> None:
        if len(self._stack) >= _MAX_DEPTH:
            raise self._error(line, "nested too deep", f"at most {_MAX_DEPTH} levels are allowed")
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        self._stack.append(_Open(line, is_mapping, event.anchor, self._count, []))

    def _close(self) -> None:
        done = self._stack.pop()
        size = self._count - done.depth_size
        node: Node
        if done.is_mapping:
            node = MapNode(done.line, self._pair(done.children))
        else:
            node = ListNode(done.line, tuple(done.children))
        self._put(node, 1, done.anchor, done.line, size + 1)

    def _pair(self, children: list[Node]) -> tuple[tuple[Scalar, Node], ...]:
        pairs: list[tuple[Scalar, Node]] = []
        merged: list[tuple[Scalar, Node]] = []
        seen: dict[str, int] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, Scalar):
                raise self._error(key.line, "a key that is not a word", "write key: value")
            if key.text in seen:
                raise self._error(
                    key.line,
                    f'key "{shorten(key.text)}" stands twice',
                    f"first on line {seen[key.text]}",
                )
            seen[key.text] = key.line
            if key.kind == "merge":
                merged += self._list_merged(key, value)
            else:
                pairs.append((key, value))
        for key, value in merged:
            # what is written wins over what is merged, and the first merged over the others
            if key.text not in seen:
                seen[key.text] = key.line
                pairs.append((key, value))
        return tuple(pairs)

    def _list_merged(self, key: Scalar, value: Node) -> list[tuple[Scalar, Node]]:
        """What ``<<`` brings along."""
        sources = value.items if isinstance(value, ListNode) else (value,)
        found: list[tuple[Scalar, Node]] = []
        for source in sources:
            if not isinstance(source, MapNode):
                raise self._error(key.line, "<< of something without keys", None)
            found += source.items
        return found

    def _follow(self, anchor: str | None, line: int) -> None:
        """An alias costs as many nodes as it stands for: that is what stops a bomb."""
        known = self._anchors.get(anchor or "")
        if known is None:
            raise self._error(line, f"nothing is called &{shorten(anchor or '')}", None)
        self._put(known[0], known[1], None, line)

    def _put(
        self, node: Node, cost: int, anchor: str | None, line: int, size: int | None = None
    ) -> None:
        self._count += cost
        if self._count > _MAX_NODES:
            raise self._error(
                line,
                "too much for a layout file",
                f"more than {_MAX_NODES} values, aliases counted",
            )
        if anchor is not None:
            self._anchors[anchor] = (node, size or cost)
        if self._stack:
            self._stack[-1].children.append(node)
        else:
            self._root = node

    def _error(self, line: int, what: str, why: str | None) -> LayoutFileError:
        return LayoutFileError(f"{self._source}:{line}: {what}", why=why)


def _classify(event: yaml.ScalarEvent) -> str:
    """Only plain words can be anything but text; a tag of the author's makes no difference."""
    if event.style not in (None, ""):
        return "str"
    tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
    return _TAGS.get(tag, "str")
