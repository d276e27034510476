"""Encoders and decoders of every operation, through ctypes: what goes in comes out, and damage is noticed."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.transport_rig import LIB
from vgpumgr.virtio.codegen.__main__ import load
from vgpumgr.virtio.codegen.emit_codec import sides
from vgpumgr.virtio.codegen.model import BLOBS, Field, Kind

pytestmark = pytest.mark.native

SPEC = load()
PAYLOADS = [(o.name, side, fields) for o in SPEC.operations for side, fields in sides(o)]
SCALARS = {Kind.U32: ctypes.c_uint32, Kind.I32: ctypes.c_int32, Kind.F32: ctypes.c_float}


class Bytes(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Coder(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("end", ctypes.c_void_p), ("failed", ctypes.c_bool))


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIB / "test" / "libvg_codec_test.so"))


@cache
def structure(fields: tuple[Field, ...], side: str) -> type[ctypes.Structure]:
    members: list[tuple[str, Any]] = []
    for f in fields:
        if f.kind in BLOBS and side == "request":
            members.append((f.name, Bytes))
        elif f.kind in BLOBS:
            members += [(f"{f.name}_length", ctypes.c_size_t), (f.name, ctypes.c_uint8 * f.cap)]
        else:
            members.append((f.name, SCALARS.get(f.kind, ctypes.c_uint64)))
    return type("Payload", (ctypes.Structure,), {"_fields_": members})


def values(f: Field) -> st.SearchStrategy[Any]:
    if f.kind is Kind.STRING:
        letters = st.text(
            st.characters(min_codepoint=1, max_codepoint=127), max_size=min(f.cap - 1, 40)
        )
        return letters.map(lambda t: t.encode() + b"\0")
    if f.kind is Kind.BYTES:
        return st.binary(max_size=min(f.cap, 200))
    if f.kind in (Kind.HANDLE, Kind.MINT):
        made = st.tuples(st.integers(1, (1 << 24) - 1), st.integers(0, (1 << 32) - 1)).map(
            lambda t: SPEC.handle(f.handle).tag << 56 | t[0] << 32 | t[1]
        )
        return made if f.kind is Kind.MINT else made | st.just(0)
    ranges = {
        Kind.U64: (0, (1 << 64) - 1),
        Kind.U32: (0, (1 << 32) - 1),
        Kind.I32: (-(1 << 31), (1 << 31) - 1),
    }
    return (
        st.floats(width=32, allow_nan=False) if f.kind is Kind.F32 else st.integers(*ranges[f.kind])
    )


def fill(
    item: ctypes.Structure, fields: tuple[Field, ...], side: str, chosen: list[Any]
) -> list[Any]:
    keep = []
    for f, value in zip(fields, chosen, strict=True):
        if f.kind in BLOBS and side == "request":
            keep.append(ctypes.create_string_buffer(value, max(len(value), 1)))
            setattr(item, f.name, Bytes(ctypes.addressof(keep[-1]), len(value)))
        elif f.kind in BLOBS:
            setattr(item, f"{f.name}_length", len(value))
            ctypes.memmove(getattr(item, f.name), value, len(value))
        else:
            setattr(item, f.name, value)
    return keep


def take(item: ctypes.Structure, fields: tuple[Field, ...], side: str) -> list[Any]:
    found: list[Any] = []
    for f in fields:
        value = getattr(item, f.name)
        if f.kind in BLOBS and side == "request":
            found.append(ctypes.string_at(value.data, value.length) if value.length else b"")
        elif f.kind in BLOBS:
            found.append(bytes(value[: getattr(item, f"{f.name}_length")]))
        else:
            found.append(value)
    return found


def encode(name: str, side: str, item: ctypes.Structure) -> bytes:
    size = getattr(library(), f"vg_size_{name}_{side}")
    size.restype = ctypes.c_size_t
    length = size(ctypes.byref(item))
    buffer = ctypes.create_string_buffer(max(length, 1))
    e = Coder()
    library().vg_encoder_init(ctypes.byref(e), buffer, ctypes.c_size_t(length))
    getattr(library(), f"vg_put_{name}_{side}")(ctypes.byref(e), ctypes.byref(item))
    assert library().vg_encoder_end(ctypes.byref(e)) == 0
    return buffer.raw[:length]


def decode(
    name: str, side: str, fields: tuple[Field, ...], payload: bytes
) -> tuple[int, list[Any]]:
    buffer = ctypes.create_string_buffer(payload, max(len(payload), 1))
    item = structure(fields, side)()
    d = Coder()
    library().vg_decoder_init(ctypes.byref(d), buffer, ctypes.c_size_t(len(payload)))
    getattr(library(), f"vg_get_{name}_{side}")(ctypes.byref(d), ctypes.byref(item))
    result = int(library().vg_decoder_end(ctypes.byref(d)))
    return result, [] if result else take(item, fields, side)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_round_trip_and_damage(data: st.DataObject) -> None:
    name, side, fields = data.draw(st.sampled_from(PAYLOADS))
    chosen = [data.draw(values(f)) for f in fields]
    item = structure(fields, side)()
    keep = fill(item, fields, side, chosen)
    payload = encode(name, side, item)
    del keep
    assert len(payload) % 8 == 0
    assert decode(name, side, fields, payload) == (0, chosen)
    cut = data.draw(st.integers(0, len(payload) - 1))
    assert decode(name, side, fields, payload[:cut])[0] != 0
    assert decode(name, side, fields, payload + bytes(8))[0] != 0


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_bytes_are_read_or_refused_and_what_is_read_is_canonical(data: st.DataObject) -> None:
    name, side, fields = data.draw(st.sampled_from(PAYLOADS))
    payload = data.draw(st.lists(st.sampled_from([0, 1, 8, 1 << 31, 1 << 32, 1 << 56 | 1 << 32, (1 << 64) - 1])).map(
        lambda words: b"".join(w.to_bytes(8, "little") for w in words)
    ))  # fmt: skip
    result, found = decode(name, side, fields, payload)
    if result:
        return
    if any(f.kind is Kind.F32 for f in fields):
        return  # a NaN is not equal to itself
    item = structure(fields, side)()
    keep = fill(item, fields, side, found)
    assert encode(name, side, item) == payload
    del keep
