"""Reading a tree strictly: every value has a type, every key is known, every error its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vgpumgr.errors import LayoutFileError
from vgpumgr.mig.layout.formats import tree
from vgpumgr.model.text import list_near

_INTEGER = re.compile(r"[-+]?\d{1,9}")
_SHOWN = 60
_LONGEST_LABEL = 200
_TRUE = frozenset({"true", "yes", "on"})
_KINDS = {tree.Mapping: "keys with values", tree.Sequence: "a list"}


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

    node: tree.Node
    where: Where

    def error(self, what: str, why: str | None = None, hint: str | None = None) -> LayoutFileError:
        """An error that names this place."""
        return LayoutFileError(f"{self.where}: {what}", why=why, hint=hint)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self.node, tree.Sequence)

    @property
    def is_map(self) -> bool:
        """Whether it has keys."""
        return isinstance(self.node, tree.Mapping)

    @property
    def is_null(self) -> bool:
        """Whether nothing is written after the key."""
        return isinstance(self.node, tree.Scalar) and self.node.kind == "null"

    @property
    def is_integer(self) -> bool:
        """Whether it is a decimal number without quotes."""
        node = self.node
        return isinstance(node, tree.Scalar) and node.kind == "int" and _is_integer(node.text)

    def read_items(self) -> list[Value]:
        """The values of a list."""
        if not isinstance(self.node, tree.Sequence):
            raise self._wrong_type("a list")
        where = self.where
        return [
            Value(item, Where(where.source, item.line, f"{where.path}[{index}]"))
            for index, item in enumerate(self.node.items)
        ]

    def read_pairs(self) -> Iterator[tuple[str, Value]]:
        """Keys and values, whatever the keys are."""
        if not isinstance(self.node, tree.Mapping):
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
        if not isinstance(self.node, tree.Scalar) or self.node.kind == "null":
            raise self._wrong_type("a word")
        return self.node.text

    def read_int(self, least: int, most: int) -> int:
        """A decimal number without quotes."""
        if not isinstance(self.node, tree.Scalar) or not self.is_integer:
            raise self._wrong_type("a whole number")
        number = int(self.node.text)
        if not least <= number <= most:
            raise self.error(f"{number} is out of range", f"{least} to {most} is allowed")
        return number

    def read_bool(self) -> bool:
        """``true`` or ``false`` without quotes."""
        if not isinstance(self.node, tree.Scalar) or self.node.kind != "bool":
            raise self._wrong_type("true or false")
        return self.node.text.lower() in _TRUE

    def _wrong_type(self, wanted: str) -> LayoutFileError:
        return self.error(f"expected {wanted}, found {_tell(self.node)}")


def read_root(text: str, source: str) -> Value:
    """The whole document."""
    node = tree.parse_tree(text, source)
    return Value(node, Where(source, node.line, ""))


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and not re.match(r"[-+]?0\d", text)


def _tell(node: tree.Node) -> str:
    if not isinstance(node, tree.Scalar):
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
