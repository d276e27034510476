"""What two sides of a channel compare, operation by operation (docs/wire-format.md): ids, hashes, and the header that
both are built with (``vg_interface.h``)."""

from __future__ import annotations

import hashlib
import struct

from vgpumgr.virtio.codegen.emit_codec import banner
from vgpumgr.virtio.codegen.model import CallClass, Field, Operation, Spec

#: bits of an operation's hash that travel, below its id
HASH_BITS = 48


def _field(spec: Spec, side: str, f: Field) -> str:
    kind = f"{f.kind} {f.cap}"
    if f.handle:
        h = spec.handle(f.handle)
        kind = f"{f.kind} {h.name} tag={h.tag} cap={h.cap}"
    return f"{side} {f.name} {kind}"


def describe(spec: Spec, o: Operation) -> str:
    """All of an operation that either side must know to read the other's frames, and nothing else."""
    flags = (
        f"posted={o.call_class is CallClass.QUIET} context={o.context} bulk={o.bulk} "
        f"always={o.reply_always} run={o.run_after_error}"
    )
    lines = [f"{spec.schema} {spec.revision}", f"{o.id:#06x} {o.name} {o.revision} {flags}"]
    if o.context:
        lines.append(_field(spec, "context", o.context_field))
    for side, fields in (("request", o.request), ("reply", o.reply)):
        lines += [_field(spec, side, f) for f in fields]
    return "\n".join(lines)


def hash_of(spec: Spec, o: Operation) -> int:
    """The first 48 bits of the operation's hash."""
    digest = hashlib.sha256(describe(spec, o).encode()).digest()
    return int.from_bytes(digest[: HASH_BITS // 8], "big")


def words(spec: Spec) -> list[int]:
    """The interface: for each operation its id and hash, in rising order."""
    return sorted(o.id << HASH_BITS | hash_of(spec, o) for o in spec.operations)


def interface_hash(spec: Spec) -> bytes:
    """What is the same on both sides where nothing needs to be compared."""
    return hashlib.sha256(b"".join(struct.pack("<Q", w) for w in words(spec))).digest()[:16]


def list_operations(spec: Spec) -> str:
    """A line for each operation with id, hash and name: the golden file of what guests out there know."""
    found = sorted(spec.operations, key=lambda o: o.id)
    return "".join(f"{o.id:#06x} {hash_of(spec, o):012x} {o.name}\n" for o in found)


def emit_interface(spec: Spec) -> str:
    """``vg_interface.h``"""
    octets = ", ".join(f"0x{b:02x}" for b in interface_hash(spec))
    names = {o.id: o.name for o in spec.operations}
    out = [
        banner(spec),
        "#ifndef VGPUMGR_INTERFACE_H\n#define VGPUMGR_INTERFACE_H\n\n#include <transport.h>\n",
        "static const uint64_t vg_interface_words[] = {",
    ]
    out += [f"\t{w:#018x}, /* {names[w >> HASH_BITS]} */" for w in words(spec)]
    out += [
        "};\n\nstatic const struct vg_interface vg_interface = {",
        f"\tvg_interface_words, {len(spec.operations)}, {{ {octets} }},\n}};\n\n#endif",
    ]
    return "\n".join(out) + "\n"
