"""Judges a parsed description: ids, names, classes, sizes."""

from __future__ import annotations

from vgpumgr.virtio.codegen.model import BLOBS, CallClass, Field, Kind, Operation, Spec, SpecError

# VG_PAYLOAD_RING_MAX is what a reply may hold; a request may be a whole frame, less its header.
REPLY_MAX = 16384
REQUEST_MAX = (1 << 20) - 4096
# VG_OPERATIONS_MAX: what the agent can say in one frame on lane 0.
OPERATIONS_MAX = 500


def check(spec: Spec) -> None:
    """Raises :class:`SpecError` on the first rule that the description breaks."""
    _handles(spec)
    _ids(spec)
    for operation in spec.operations:
        _operation(spec, operation)
    _functions(spec)


def _handles(spec: Spec) -> None:
    seen: dict[int, str] = {}
    for h in spec.handles:
        if not 1 <= h.tag <= 99:
            raise SpecError(h.where, f"tag {h.tag} of handle '{h.name}' is not within 1 to 99")
        if h.tag in seen:
            raise SpecError(h.where, f"tag {h.tag} is used by both '{seen[h.tag]}' and '{h.name}'")
        if not 1 <= h.cap <= 1 << 24:
            raise SpecError(
                h.where, f"cap {h.cap} of handle '{h.name}' is not within 1 to {1 << 24}"
            )
        seen[h.tag] = h.name


def _ids(spec: Spec) -> None:
    ids: dict[int, str] = {}
    names: set[str] = set()
    if len(spec.operations) > OPERATIONS_MAX:
        where = spec.operations[OPERATIONS_MAX].where
        raise SpecError(where, f"more than {OPERATIONS_MAX} operations")
    for o in spec.operations:
        if not 1 <= o.id <= 0xFFFF:
            raise SpecError(o.where, f"id {o.id:#06x} of '{o.name}' is not within 0x0001 to 0xffff")
        if o.id in spec.retired:
            raise SpecError(
                o.where, f"id {o.id:#06x} of '{o.name}' is retired and must not be used again"
            )
        if o.id in ids:
            raise SpecError(o.where, f"id {o.id:#06x} is used by both '{ids[o.id]}' and '{o.name}'")
        if o.name in names:
            raise SpecError(o.where, f"'{o.name}' is described twice")
        ids[o.id] = o.name
        names.add(o.name)


def _operation(spec: Spec, o: Operation) -> None:
    if o.call_class is CallClass.LOCAL:
        raise SpecError(o.where, f"'{o.name}' has an id but class local: nothing would travel")
    if o.call_class is CallClass.QUIET and (o.reply or o.bulk == "out" or o.blocking):
        raise SpecError(o.where, f"'{o.name}' is quiet and cannot have outputs or block")
    if o.call_class is CallClass.CACHED and (
        o.bulk != "none" or any(f.kind is Kind.MINT for f in o.request)
    ):
        raise SpecError(o.where, f"'{o.name}' is cached and cannot make objects or carry bulk")
    kinds = {h.name for h in spec.handles}
    for fields, limit in ((o.request, REQUEST_MAX), (o.reply, REPLY_MAX)):
        seen: set[str] = set()
        for f in fields:
            if f.name in seen or (f.name == "context" and o.context):
                raise SpecError(f.where, f"field '{f.name}' of '{o.name}' is given twice")
            seen.add(f.name)
            if f.handle and f.handle not in kinds:
                raise SpecError(f.where, f"'{f.handle}' is no kind of handle")
            if f.kind in BLOBS and f.cap < 1:
                raise SpecError(f.where, f"the cap of '{f.name}' must be at least 1 byte")
        if (size := 8 + sum(largest(f) for f in fields)) > limit:
            raise SpecError(
                o.where,
                f"'{o.name}' may take {size} bytes, more than the {limit} that a frame holds",
            )
    if any(f.kind in (Kind.HANDLE, Kind.MINT) for f in o.reply):
        raise SpecError(
            o.where, f"'{o.name}' returns a handle: handles are named by the guest, use mint"
        )


def _functions(spec: Spec) -> None:
    operations = {o.name for o in spec.operations}
    by_name = {f.name: f for f in spec.functions}
    seen: set[str] = set()
    for f in spec.functions:
        for name in f.exports:
            if name in seen:
                raise SpecError(f.where, f"'{name}' is described twice")
            seen.add(name)
        for used in f.uses:
            if used not in operations:
                raise SpecError(f.where, f"'{f.name}' uses '{used}', which is no operation")
        if f.via:
            target = by_name.get(f.via)
            if target is None or [p.c_type for p in target.params] != [
                *(p.c_type for p in f.params),
                "CUstream",
            ]:
                raise SpecError(
                    f.where,
                    f"'{f.name}' goes via '{f.via}', which is not the same with a stream added",
                )


def largest(f: Field) -> int:
    """The most bytes that a field takes on the wire."""
    return 8 + (f.cap + 7) // 8 * 8 if f.kind in BLOBS else 8
