"""XML documents as libvirt writes them: hardened parsing, rendering, digests.

libvirt's XML comes from a privileged daemon but carries what users wrote into it, so entities, DTDs
and network access are off, and sizes are bounded.
"""

from __future__ import annotations

import hashlib

from lxml import etree

from vgpumgr.errors import DocumentError

#: Larger than any sane domain definition; libvirt's own RPC limit for XML is 4 MiB.
MAX_DOCUMENT_BYTES = 4 << 20


def _parser() -> etree.XMLParser:
    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_blank_text=False,
    )


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
    try:
        root = etree.fromstring(data, _parser())
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
