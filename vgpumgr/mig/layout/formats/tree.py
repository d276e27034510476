"""YAML (and JSON, which is YAML) as a tree of nodes that know their line. Nothing is constructed.

The text may be anybody's, so everything is bounded before it costs anything: bytes, nodes after
aliases are followed, depth. Duplicate keys are refused. Raises LayoutFileError, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml
from yaml.resolver import Resolver

from vgpumgr.errors import LayoutFileError

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
class Sequence:
    """A list."""

    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys with the lines that they stand on, in the order of the file."""

    line: int
    items: tuple[tuple[Scalar, Node], ...]


Node = Scalar | Sequence | Mapping


def parse_tree(text: str, source: str) -> Node:
    """The one document in ``text``; ``source`` is what errors call the file."""
    if len(text) > MAX_BYTES:
        raise _too_large(source)
    try:
        builder = _Builder(source, yaml.parse(text, Loader=_LOADER))
        return builder.build()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source}:{mark.line + 1}" if mark else source
        words = error.problem or error.context or "malformed"
        raise LayoutFileError(f"{place}: not valid YAML", cause=_shorten(str(words))) from error
    except (yaml.YAMLError, UnicodeError, ValueError, RecursionError) as error:
        reason = getattr(error, "reason", None) or str(error).partition("\n")[0]
        raise LayoutFileError(f"{source}: not valid YAML", cause=_shorten(str(reason))) from error


def _too_large(source: str) -> LayoutFileError:
    return LayoutFileError(
        f"{source}: too large for a layout file",
        why=f"more than {MAX_BYTES >> 20} MiB; a layout for a large host takes a few kB",
    )


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
            node = Mapping(done.line, self._pair(done.children))
        else:
            node = Sequence(done.line, tuple(done.children))
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
                    f'key "{_shorten(key.text)}" stands twice',
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
        sources = value.items if isinstance(value, Sequence) else (value,)
        found: list[tuple[Scalar, Node]] = []
        for source in sources:
            if not isinstance(source, Mapping):
                raise self._error(key.line, "<< of something without keys", None)
            found += source.items
        return found

    def _follow(self, anchor: str | None, line: int) -> None:
        """An alias costs as many nodes as it stands for: that is what stops a bomb."""
        known = self._anchors.get(anchor or "")
        if known is None:
            raise self._error(line, f"nothing is called &{_shorten(anchor or '')}", None)
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


def _shorten(text: str) -> str:
    """What was written, for a message."""
    return ascii(text[:60])[1:-1]


def _classify(event: yaml.ScalarEvent) -> str:
    """Only plain words can be anything but text; a tag of the author's makes no difference."""
    if event.style not in (None, ""):
        return "str"
    tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
    return _TAGS.get(tag, "str")
