"""Values: parsing, refusing, and coming back the same through the codec."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.boards import A100, BOARDS, make_gpu, make_uuid
from vgpumgr.model.codec import ShapeError, decode, encode
from vgpumgr.model.gpu import Gpu
from vgpumgr.model.identity import GpuUuid, MigUuid
from vgpumgr.model.mig import MigProfileName, Variant
from vgpumgr.model.pci import PciAddress
from vgpumgr.model.request import (
    MigRequest,
    PassthroughRequest,
    ShareRequest,
    VgpuRequest,
    parse_profile_request,
)
from vgpumgr.model.shares import Share
from vgpumgr.model.text import format_size, parse_size

addresses = st.builds(
    PciAddress,
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 0xFF),
    st.integers(0, 0x1F),
    st.integers(0, 7),
)
names = st.builds(
    MigProfileName,
    st.integers(1, 8),
    st.integers(1, 300),
    st.sampled_from(Variant),
)


@given(addresses)
def test_pci_address_reads_what_it_writes(address: PciAddress) -> None:
    assert PciAddress.parse(str(address)) == address


@pytest.mark.parametrize("text", ["0000:3b:00.0", "3b:00.0", "00000000:3B:00.0", " 3B:00.0 "])
def test_pci_address_forms_mean_the_same(text: str) -> None:
    assert PciAddress.parse(text) == PciAddress(0, 0x3B, 0, 0)


@pytest.mark.parametrize("text", ["", "3b:00", "3b:00.8", "3b:20.0", "g0:00.0", "../3b:00.0"])
def test_pci_address_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="PCI address"):
        PciAddress.parse(text)


@given(st.lists(addresses, max_size=5))
def test_pci_addresses_sort_as_the_kernel_enumerates(found: list[PciAddress]) -> None:
    keys = [(a.domain, a.bus, a.device, a.function) for a in sorted(found)]
    assert keys == sorted(keys)


@given(names)
def test_profile_name_reads_what_it_writes(name: MigProfileName) -> None:
    assert MigProfileName.parse(str(name)) == name
    assert MigProfileName.parse(f"MIG {name}") == name


def test_profile_name_with_compute_part() -> None:
    name = MigProfileName.parse("1c.3g.40gb")
    assert (name.compute_slices, name.slices, str(name)) == (1, 3, "1c.3g.40gb")
    assert str(name.gpu_instance) == "3g.40gb"
    assert MigProfileName.parse("3c.3g.40gb") == MigProfileName.parse("3g.40gb")
    with pytest.raises(ValueError, match="asks for 4 of 3"):
        MigProfileName.parse("4c.3g.40gb")


@pytest.mark.parametrize(
    "text", ["1g", "1g.10", "1g.10gb+mee", "g.10gb", "1g.10gb-gfx", "a1g.10gb"]
)
def test_profile_name_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a MIG profile name"):
        MigProfileName.parse(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (80 << 30, "80 GiB"),
        (10200547328, "9.5 GiB"),
    ],
)
def test_sizes_for_people(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@given(st.integers(0, 1023), st.sampled_from(["", "K", "M", "G", "T"]), st.sampled_from(["", "iB"]))
def test_sizes_are_read_as_powers_of_1024(number: int, prefix: str, suffix: str) -> None:
    power = " KMGT".index(prefix) if prefix else 0
    if not prefix:
        suffix = ""
    assert parse_size(f"{number}{prefix}{suffix}") == number * 1024**power


def test_a_size_in_bytes_is_exact() -> None:
    assert parse_size(str((1 << 60) + 1)) == (1 << 60) + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("8GB", "8GiB"), ("", "not a size"), ("-1G", "not a size"), ("１G", "not a size"),
        ("9" * 400, "has 400 digits"), ("1." + "9" * 5000 + "P", "has 5002 digits"),
    ],
    ids=lambda text: text[:24],
)  # fmt: skip
def test_sizes_refuse_with_advice(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_size(text)


def test_requests_by_name() -> None:
    assert parse_profile_request("1g.10gb") == MigRequest(MigProfileName(1, 10))
    assert parse_profile_request("Passthrough") == PassthroughRequest()
    assert parse_profile_request("share:8GiB,30%") == ShareRequest(Share(8 << 30, 30))
    assert parse_profile_request("share:1/4") == ShareRequest(parts=4)
    assert parse_profile_request("NVIDIA A100-2-10C") == VgpuRequest("NVIDIA A100-2-10C")


@pytest.mark.parametrize(
    "text", ["", "share:", "share:0,10%", "share:8G,0%", "share:8G,101%", "1g.10g"]
)
def test_requests_refuse(text: str) -> None:
    with pytest.raises(ValueError):
        parse_profile_request(text)


@pytest.mark.parametrize("text", ["GPU-1", "", make_uuid("MIG", 1), make_uuid("GPU", 1) + "0"])
def test_gpu_uuid_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="GpuUuid"):
        GpuUuid(text)


def test_mig_uuid_has_two_forms() -> None:
    assert MigUuid(make_uuid("MIG", 1))
    assert MigUuid(f"MIG-{make_uuid('GPU', 1)}/1/0")


@pytest.mark.parametrize("model", BOARDS)
def test_gpu_survives_the_codec(model: str) -> None:
    gpu = make_gpu(model, 1, [])
    gpu = make_gpu(model, 1, [(str(gpu.profiles[0].name), 0)])
    assert decode(Gpu, json.loads(json.dumps(encode(gpu)))) == gpu


@dataclass(frozen=True)
class _Sample:
    number: int
    ratio: float
    maybe: PciAddress | None
    pair: tuple[int, str]


@given(
    st.builds(
        _Sample,
        number=st.integers(),
        ratio=st.floats(allow_nan=False),  # NaN is unequal to itself
        maybe=st.none() | addresses,
    )
)
def test_codec_round_trip(sample: _Sample) -> None:
    assert decode(_Sample, encode(sample)) == sample


@pytest.mark.parametrize(
    "change",
    [
        {"number": "1"},
        {"number": True},
        {"number": None},
        {"maybe": "nonsense"},
        {"maybe": 3},
        {"pair": [1]},
        {"pair": {"1": "a"}},
        {"unknown": 1},
    ],
)
def test_codec_refuses_what_does_not_fit(change: dict[str, object]) -> None:
    good = {"number": 1, "ratio": 1, "maybe": None, "pair": [1, "a"]}
    assert decode(_Sample, good).ratio == 1.0
    with pytest.raises(ValueError):
        decode(_Sample, good | change)


def test_codec_refuses_missing_fields() -> None:
    with pytest.raises(ValueError, match="not a _Sample"):
        decode(_Sample, {"number": 1})


@dataclass(frozen=True)
class _Nested:
    samples: list[_Sample]
    mode: Literal["on", "off", 1]
    sizes: dict[str, int]
    free: dict[str, Any] | None
    from_: Annotated[int, "a word of Python's"] = field(default=0, metadata={"alias": "from"})


def test_codec_takes_documents_apart() -> None:
    nested = _Nested(
        [_Sample(1, 0.5, None, (1, "a"))], "on", {"x": 3}, {"any": [None, {"y": 1.5}]}, 7
    )
    data = encode(nested)
    assert data["from"] == 7
    assert json.loads(json.dumps(data)) == data
    assert decode(_Nested, data) == nested


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"mode": "none"}, "mode"), ({"mode": True}, "mode"),
        ({"sizes": {"x": "3"}}, "sizes.x"), ({"sizes": []}, "sizes"),
        ({"free": 1}, "free"), ({"from_": 1}, "from_"), ({"samples": {}}, "samples"),
        ({"samples": [{"number": 1, "ratio": "x", "maybe": None, "pair": [1, "a"]}]}, "samples.0.ratio"),
        ({"samples": [{"number": 1, "ratio": 1, "maybe": None, "pair": [1, 2]}]}, "samples.0.pair.1"),
    ],
)  # fmt: skip
def test_codec_names_what_does_not_fit(change: dict[str, object], path: str) -> None:
    good = {"samples": [], "mode": 1, "sizes": {}, "free": None, "from": 1}
    assert decode(_Nested, good).from_ == 1
    with pytest.raises(ShapeError) as refused:
        decode(_Nested, good | change)
    assert refused.value.path == path
    assert str(refused.value).startswith(f"{path}: ")


@dataclass(frozen=True)
class _Tolerant:
    IGNORES_UNKNOWN: ClassVar[bool] = True
    number: int


def test_codec_ignores_unknown_fields_where_a_class_says_so() -> None:
    assert decode(_Tolerant, {"number": 1, "newer": {"x": []}}) == _Tolerant(1)
    with pytest.raises(ShapeError):
        decode(_Tolerant, {"newer": 1})


def test_axis_and_slices_come_from_the_profiles() -> None:
    gpu = make_gpu(A100)
    assert (gpu.memory_positions, gpu.compute_slices) == (8, 7)
