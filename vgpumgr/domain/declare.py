"""Declares where a value lives in an XML document; reading and writing share the declaration.

A class lists its values as annotated fields::

    class Channel(Element, tag="channel"):
        source_path: Annotated[str | None, At("source/@path")] = None

`Element.from_xml` reads them, `Element.to_xml` writes them. A value remembers the element it was
read from and writes only what differs, so that whatever the class does not know survives untouched.
Values are frozen and equal when all declared values are equal. Nothing here sets defaults or
validates: rendering decides nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, replace
from functools import cache, lru_cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from lxml import etree

from vgpumgr.errors import DocumentError
from vgpumgr.model.frozen import dataclass

#: Larger than any sane domain definition; libvirt's own RPC limit for XML is 4 MiB.
MAX_DOCUMENT_BYTES = 4 << 20


def parse_document(text: str | bytes) -> etree._Element:
    """The root element of a document.

    Raises:
        DocumentError: not well-formed, too large, or with a document type declaration (entities
        live there).
    """
    data = text.encode() if isinstance(text, str) else text
    if len(data) > MAX_DOCUMENT_BYTES:
        raise DocumentError(
            f"XML document of {len(data)} bytes is larger than {MAX_DOCUMENT_BYTES}"
        )
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as e:
        raise DocumentError("XML document is not well-formed", cause=str(e)) from e
    if root.getroottree().docinfo.doctype:
        raise DocumentError(
            "XML document has a document type declaration", why="entities are not allowed"
        )
    return root


def render_element(element: etree._Element) -> str:
    """The element as text, without what follows it."""
    return etree.tostring(element, encoding="unicode", with_tail=False)


def document_digest(text: str) -> str:
    """A digest that changes when a document's meaning may have: canonical XML, blanks between
    elements ignored.
    """
    root = parse_document(text)
    for element in root.iter():
        if isinstance(element.tag, str) and len(element) and not (element.text or "").strip():
            element.text = None
        if not (element.tail or "").strip():
            element.tail = None
    return hashlib.sha256(etree.tostring(root, method="c14n")).hexdigest()


T = TypeVar("T")


@dataclass(frozen=True)
class Codec(Generic[T]):
    """How a value is spelled: text to value and back. Decoding raises ValueError on what it does
    not understand.
    """

    decode: Callable[[str], T]
    encode: Callable[[T], str]


def _flag(true: str, false: str) -> Codec[bool]:
    def decode(text: str) -> bool:
        if text not in (true, false):
            raise ValueError(f"neither {true!r} nor {false!r}: {text!r}")
        return text == true

    return Codec(decode, lambda value: true if value else false)


def _decode_number(text: str) -> int:
    return int(text, 16) if text.lower().startswith("0x") else int(text)


TEXT: Codec[str] = Codec(str, str)
NUMBER: Codec[int] = Codec(_decode_number, str)
YES_NO = _flag("yes", "no")
ON_OFF = _flag("on", "off")


def hexadecimal(digits: int) -> Codec[int]:
    """Numbers as libvirt writes PCI addresses: ``0x`` and a fixed number of digits."""
    return Codec(_decode_number, lambda value: f"0x{value:0{digits}x}")


_PATH = re.compile(
    r"^(?P<elements>[a-z][a-z0-9_]*(/[a-z][a-z0-9_]*)*)?/?(@(?P<attribute>[a-zA-Z]+)|(?P<text>text\(\)))?$"
)


@cache
def _split_path(path: str) -> tuple[tuple[str, ...], str | None, bool]:
    """Elements, attribute, and whether it is the text. There are as many paths as declarations."""
    match = _PATH.match(path)
    assert match is not None, path
    elements = match["elements"]
    return (
        tuple(elements.split("/")) if elements else (),
        match["attribute"],
        match["text"] is not None,
    )


@dataclass(frozen=True)
class At:
    """Where a value lives: ``a/b/@c`` (attribute), ``a/text()``, or ``a`` (that the element is
    there at all).
    """

    path: str
    codec: Codec[Any] = TEXT

    @property
    def is_presence(self) -> bool:
        """Whether the value only says that the element exists."""
        _, attribute, text = _split_path(self.path)
        return attribute is None and not text

    def read(self, element: etree._Element) -> Any:
        """The value in the element, or None (for a presence: False) if it is not there."""
        elements, attribute, _ = _split_path(self.path)
        node = element.find("/".join(elements)) if elements else element
        if self.is_presence:
            return node is not None
        if node is None:
            return None
        raw = node.get(attribute) if attribute else node.text
        if raw is None:
            return None
        try:
            return self.codec.decode(raw)
        except ValueError as e:
            raise DocumentError(
                f"cannot read {self.path} of <{element.tag!s}>", cause=str(e)
            ) from e

    def write(self, element: etree._Element, value: Any) -> None:
        """Puts the value there; None (False) takes it away, and elements that are empty after that
        with it.
        """
        if value is None or (self.is_presence and value is False):
            self._remove(element)
            return
        elements, attribute, _ = _split_path(self.path)
        node = element
        for tag in elements:
            child = node.find(tag)
            node = etree.SubElement(node, tag) if child is None else child
        if self.is_presence:
            return
        if attribute:
            node.set(attribute, self.codec.encode(value))
        else:
            node.text = self.codec.encode(value)

    def _remove(self, element: etree._Element) -> None:
        elements, attribute, _ = _split_path(self.path)
        node = element.find("/".join(elements)) if elements else element
        if node is None:
            return
        if attribute:
            node.attrib.pop(attribute, None)
        elif not self.is_presence:
            node.text = None
        while node is not element and (self.is_presence or _is_bare(node)):
            parent = node.getparent()
            assert parent is not None
            _take_out(parent, node)
            node = parent
            if self.is_presence:
                return


@dataclass(frozen=True)
class Inside:
    """A value that is an element of its own class: one (``address``) or, for a tuple, all
    (``devices/shmem``).
    """

    path: str
    many: bool = False
    #: only elements whose attributes are these belong here
    having: tuple[tuple[str, str], ...] = ()
    #: the class of the elements; the field's type says it
    cls: type[Element] | None = None

    def elements(self, element: etree._Element) -> list[etree._Element]:
        """The elements that this declaration means."""
        return [e for e in element.findall(self.path) if all(e.get(k) == v for k, v in self.having)]

    def read(self, element: etree._Element) -> Any:
        """The value (None if absent), or a tuple of all."""
        # a class is hashable, whatever mypy thinks of one whose objects are, too
        cls = cast(Hashable, self.cls)
        found = [_read_text(cls, render_element(e)) for e in self.elements(element)]
        if self.many:
            return tuple(found)
        return found[0] if found else None

    def write(self, element: etree._Element, value: Any) -> None:
        """Makes the elements there equal to the value; those that are equal already stay untouched,
        in their place.
        """
        assert self.cls is not None
        wanted = list(value) if self.many else [] if value is None else [value]
        for existing in self.elements(element):
            have = self.cls.from_element(existing)
            if have in wanted:
                wanted.remove(have)
            else:
                parent = existing.getparent()
                assert parent is not None
                _take_out(parent, existing)
        for new in wanted:
            self._append(element, new)

    def _append(self, element: etree._Element, new: Element) -> None:
        parent = element
        for tag in self.path.split("/")[:-1]:
            child = parent.find(tag)
            parent = etree.SubElement(parent, tag) if child is None else child
        parent.append(new.to_element())


def _is_bare(node: etree._Element) -> bool:
    return not node.attrib and not len(node) and not (node.text or "").strip()


def _take_out(parent: etree._Element, node: etree._Element) -> None:
    """Removes an element and the blanks after it; text that is not blank stays."""
    if (node.tail or "").strip():
        previous = node.getprevious()
        if previous is None:
            parent.text = (parent.text or "") + (node.tail or "")
        else:
            previous.tail = (previous.tail or "") + (node.tail or "")
    parent.remove(node)


@dataclass(frozen=True)
class Declaration:
    """One declared value of an element class."""

    owner: type[Element]
    name: str
    place: At | Inside


@dataclass(frozen=True, kw_only=True)
class Element:
    """Base of all element classes; subclasses are frozen dataclasses whose annotated fields are
    declarations.
    """

    tag: ClassVar[str] = ""
    #: attributes that every element of the class has (``type='unix'``)
    fixed: ClassVar[tuple[tuple[str, str], ...]] = ()

    @classmethod
    def from_element(cls, element: etree._Element) -> Self:
        """Reads the declared values and remembers the element."""
        values = {d.name: d.place.read(element) for d in declarations_of(cls)}
        value = cls(**{k: v for k, v in values.items() if v is not None})
        # what is absent takes the field's default, which then does not stand in the element
        says_more = any(v is None and getattr(value, k) is not None for k, v in values.items())
        object.__setattr__(value, "_origin", render_element(element))
        object.__setattr__(value, "_is_as_read", not says_more)
        return value

    @classmethod
    def from_xml(cls, text: str) -> Self:
        """Parses a document whose root is the element."""
        root = parse_document(text)
        if root.tag != cls.tag:
            raise DocumentError(f"expected <{cls.tag}>, found <{root.tag!s}>")
        return cls.from_element(root)

    def to_element(self) -> etree._Element:
        """The element: the one it was read from with the values that differ written into it, or a
        new one.
        """
        origin: str | None = getattr(self, "_origin", None)
        element = etree.Element(self.tag) if origin is None else parse_document(origin)
        for key, text in self.fixed:
            if element.get(key) != text:
                element.set(key, text)
        if not getattr(self, "_is_as_read", False):
            for declaration in declarations_of(type(self)):
                value = getattr(self, declaration.name)
                if declaration.place.read(element) != value:
                    declaration.place.write(element, value)
        return element

    def to_xml(self) -> str:
        """The element as text."""
        return render_element(self.to_element())

    def changed(self, **values: Any) -> Self:
        """A copy with other values; what the class does not know comes along (`dataclasses.replace`
        would lose it).
        """
        names = {f.name for f in fields(self)}
        unknown = values.keys() - names
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        copy = type(self)(**{name: values.get(name, getattr(self, name)) for name in names})
        origin = getattr(self, "_origin", None)
        if origin is not None:
            object.__setattr__(copy, "_origin", origin)
        return copy


#: a few definitions' worth: of two definitions of a domain, most elements are the same
_MAX_KNOWN = 128


@lru_cache(maxsize=_MAX_KNOWN)
def _read_text(cls: type[Element], text: str) -> Element:
    """``from_element``, once for equal texts: values are frozen, and the text is all they are made of."""
    return cls.from_element(parse_document(text))


def declarations_of(cls: type[Element]) -> tuple[Declaration, ...]:
    """The class's declared values in the order of its fields."""
    return _declarations_of(cls)  # type: ignore[arg-type]  # mypy takes the class for its values


@cache
def _declarations_of(cls: type[Element]) -> tuple[Declaration, ...]:
    hints = get_type_hints(cls, include_extras=True)
    found = []
    for field in fields(cls):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            raise TypeError(f"{cls.__name__}.{field.name} does not say where it lives")
        place = next(m for m in get_args(hint)[1:] if isinstance(m, At | Inside))
        if isinstance(place, Inside):
            place = replace(place, cls=_element_class(get_args(hint)[0]))
        found.append(Declaration(cls, field.name, place))
    return tuple(found)


def _element_class(hint: Any) -> type[Element] | None:
    """The element class named in a hint such as ``Shmem``, ``Shmem | None`` or ``tuple[Shmem,
    ...]``.
    """
    if isinstance(hint, type) and issubclass(hint, Element):
        return hint
    return next((c for c in map(_element_class, get_args(hint)) if c is not None), None)


def all_declarations(base: type[Element] = Element) -> Iterator[Declaration]:
    """Every declaration of every element class, for the coverage test."""
    for cls in base.__subclasses__():
        yield from declarations_of(cls)
        yield from all_declarations(cls)
