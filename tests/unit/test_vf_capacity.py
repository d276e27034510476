"""How many virtual functions VMs can have of a GPU now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fake_host import FLEX
from tests.support.hostdev_rig import ask, make
from tests.support.service import Bench
from vgpumgr.app.documents.gpus import describe_pci_gpu
from vgpumgr.app.host_observation import index_devices, measure_vfs
from vgpumgr.model.gpu import Inventory, PciGpu


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make(tmp_path)


def test_what_is_left_of_virtual_functions_is_what_attach_takes(bench: Bench) -> None:
    """As ``gpu show`` has it, step by step, with what ``attach`` says at the end."""
    parts = bench.service.parts

    def measure() -> tuple[int, int, int, int, str | None]:
        physical = bench.pci.functions[FLEX]
        gpu = PciGpu(
            FLEX, physical.vendor_id, physical.device_id, physical.class_code, "Flex",
            driver=physical.driver, vfs_total=physical.vf_total, vfs_enabled=len(physical.vfs),
            vfs=tuple(bench.pci.functions[vf] for vf in physical.vfs),
        )  # fmt: skip
        inventory = Inventory("", "", None, (), others=(gpu,))
        devices = index_devices(parts, inventory, parts.store.list_attachments())
        seen = describe_pci_gpu(gpu).replace(devices=list(devices.get(str(FLEX), ())))
        found = measure_vfs(parts, gpu, seen)
        assert found is not None
        return found.possible, found.enabled, found.used, found.free, found.why_not

    assert measure() == (7, 0, 0, 7, None)
    bench.service.attach(ask("vf:2"))
    assert measure() == (7, 2, 1, 1, None)
    bench.service.attach(ask("vf", vm="vm01"))
    *counts, why = measure()
    assert counts == [7, 2, 2, 0]
    assert "VMs have all that are enabled" in (why or "")
    # a boot has taken them: their places are kept
    bench.pci.set_vf_count(FLEX, 0)
    assert measure()[:4] == (7, 0, 0, 5)
    bench.pci.set_vf_count(FLEX, 2)
    bench.service.detach("vm01")
    bench.service.detach("vm02")
    bench.pci.functions[FLEX] = replace(bench.pci.functions[FLEX], vfs=())
    bench.service.attach(ask(gpu=str(FLEX)))
    *counts, why = measure()
    assert counts[-1] == 0
    assert "vm02 has the whole GPU" in (why or "")
