"""Tables of GPUs and vGPUs on a terminal of 80 columns: names can be pasted, reasons can be read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cli import FixedWidth, Terminal
from vgpumgr.cli.main import main
from vgpumgr.cli.session import GlobalOptions, Session

UUIDS = [
    "6f1a8a6e-35f0-4bd0-8d4c-0e0000000001",
    "6f1a8a6e-35f1-4bd0-8d4c-0e0000000002",
    "ef4a0000-0000-4bd0-8d4c-0e0000000003",
]


def run(
    answer: dict[str, Any], *words: str, terminal: bool = True, code: int = 0
) -> tuple[str, str]:
    """Standard output and error of a command whose application gives that answer."""

    class Backend:
        def call(self, _operation: str, **_params: Any) -> dict[str, Any]:
            return {"schema": "vgpumgr/v1", "notes": [], **answer}

    @contextmanager
    def open_backend(_options: GlobalOptions) -> Iterator[Backend]:
        yield Backend()

    out, err = Terminal() if terminal else io.StringIO(), io.StringIO()
    options = GlobalOptions()
    streams = FixedWidth(options, out, err, {"NO_COLOR": "1"})
    streams.columns = 80
    assert main(words, Session(options, streams, open_backend)) == code
    return out.getvalue(), err.getvalue()


def make_vgpu(uuid: str | None, parent: str) -> dict[str, Any]:
    return {
        "uuid": uuid, "state": "active", "ours": uuid is not None, "framework": "mdev",
        "type": "NVIDIA A100-1-5CME", "type_id": "nvidia-700", "parent": parent, "gpu": parent,
        "defined": True, "auto": True, "attributes": [], "iommu_group": 3, "vm": "vm01", "held_by": [],
    }  # fmt: skip


def make_type(name: str, free: int, reason: str | None) -> dict[str, Any]:
    return {
        "gpu": "0000:3a:00.0", "gpu_index": 0, "framework": "mdev", "id": "nvidia-700", "name": name,
        "framebuffer_bytes": 5 << 30, "heads": 1, "max_instances": 7, "frame_rate_limit": 60,
        "resolution": {"width": 4096, "height": 2160}, "mig_profile": "1g.5gb+me", "free": free,
        "reason": reason,
    }  # fmt: skip


def make_function(**more: Any) -> dict[str, Any]:
    return {
        "address": "0000:01:00.0", "gpu_index": 0, "kind": "gpu", "model": "NVIDIA GeForce RTX 3090",
        "driver": "nvidia", "iommu_group": 10, "numa_node": 0, "reset_methods": None, "power_state": "D0",
        "companions": [], "binding": None, "verdict": "in-use", "why": None, "users": [],
        "blockers": [
            "0000:01:00.0 (gpu, nvidia): process 12 (Xorg), which has /dev/nvidia0 open;"
            " 0000:01:00.0 is the display that the host boots with",
            "0000:01:00.1 (audio, snd_hda_intel)",
        ],
        **more,
    }  # fmt: skip


def test_vgpus_fit_by_the_beginnings_of_their_uuids() -> None:
    rows = [make_vgpu(uuid, "0000:3a:00.4") for uuid in UUIDS] + [make_vgpu(None, "0000:3a:00.5")]
    out, _ = run({"vgpus": rows}, "mdev", "list")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split()[0] for line in lines[1:] if not line.startswith(" ")]
    assert shown == ["6f1a8a6e-35f0", "6f1a8a6e-35f1", "ef4a0000-0000", "0000:3a:00.5"]
    for name, uuid in zip(shown, UUIDS, strict=False):
        assert [u for u in UUIDS if u.startswith(name)] == [uuid], "commands take it"


@pytest.mark.parametrize("words", [("-o", "wide"), ("-o", "name"), ("-o", "csv"), ("-o", "json")])
def test_who_asks_for_more_gets_whole_uuids(words: tuple[str, ...]) -> None:
    rows = [make_vgpu(uuid, "0000:3a:00.4") for uuid in UUIDS]
    out, _ = run({"vgpus": rows}, "mdev", "list", *words)
    assert all(uuid in out for uuid in UUIDS)


def test_a_pipe_gets_whole_uuids() -> None:
    rows = [make_vgpu(uuid, "0000:3a:00.4") for uuid in UUIDS]
    out, _ = run({"vgpus": rows}, "mdev", "list", terminal=False)
    assert all(uuid in out for uuid in UUIDS)


def test_types_say_what_their_room_hangs_on() -> None:
    full = "each of its 16 virtual functions has a vGPU"
    rows = [make_type("NVIDIA A100-1-5CME", 0, full), make_type("NVIDIA A100-2-10C", 0, full)]
    out, err = run({"types": [*rows, make_type("NVIDIA A100-3-20C", 2, None)]}, "mdev", "types")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "MIG" in lines[0].split()
    assert err == ""
    out, err = run({"types": rows}, "mdev", "types", "-o", "wide")
    assert len(out.splitlines()) == 3, "a line each"
    assert err == f"NVIDIA A100-1-5CME, NVIDIA A100-2-10C on GPU 0: {full}\n"
    out, _ = run({"types": rows}, "mdev", "types", "--columns", "name,why")
    assert out.count("virtual") == 2, "who asks for the column gets it"


def test_who_is_in_the_way_stands_below_the_functions() -> None:
    out, err = run({"functions": [make_function()]}, "passthrough", "list")
    assert len(out.splitlines()) == 2
    assert max(map(len, out.splitlines())) <= 80
    assert err == (
        "0000:01:00.0: process 12 (Xorg), which has /dev/nvidia0 open; it is the display that the"
        " host boots with; 0000:01:00.1 (audio, snd_hda_intel)\n"
    )
    out, err = run({"functions": [make_function()]}, "passthrough", "list", terminal=False)
    assert "process 12 (Xorg)" in out, "a pipe has it as a column"
    assert err == ""


def test_one_vgpu_is_shown_whole() -> None:
    rows = [make_vgpu(uuid, "0000:3a:00.4") for uuid in UUIDS] + [make_vgpu(None, "0000:3a:00.5")]
    for name in (UUIDS[0], UUIDS[0][:13].upper(), "0000:3a:00.5"):
        out, _ = run({"vgpus": rows}, "mdev", "show", name)
        assert name.lower() in out.splitlines()[0]
    out, err = run({"vgpus": rows}, "mdev", "show", UUIDS[0][:8], code=2)
    assert (out, "is not one vGPU" in err, UUIDS[1] in err) == ("", True, True)
    out, err = run({"vgpus": rows}, "mdev", "show", "7" * 36, code=5)
    assert (out, "no vGPU is" in err, "vgpumgr mdev list" in err) == ("", True, True)


def test_one_function_is_shown_with_what_is_in_its_way() -> None:
    for name in ("0000:01:00.0", "01:00.0"):
        out, _ = run({"functions": [make_function()]}, "passthrough", "show", name)
        assert (out.splitlines()[0], "Xorg" in out) == ("function 0000:01:00.0", True)
    _, err = run({"functions": [make_function()]}, "passthrough", "show", "01:00.7", code=5)
    assert "did you mean" in err
