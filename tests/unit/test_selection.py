"""``--gpu``: every name that some tool taught, and useful answers to the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.boards import make_gpu
from vgpumgr.errors import GpuAmbiguousError, GpuNotFoundError
from vgpumgr.mig.selection import select_gpu
from vgpumgr.model.identity import GpuUuid

GPUS = (
    replace(make_gpu(index=0), uuid=GpuUuid("GPU-5c8f1111-0000-4000-8000-000000000000")),
    replace(make_gpu(index=1), uuid=GpuUuid("GPU-5c8f2222-0000-4000-8000-000000000000")),
    replace(
        make_gpu(index=2, layout=[("1g.10gb", 6)]),
        uuid=GpuUuid("GPU-12345678-0000-4000-8000-000000000000"),
    ),
)
MIG = GPUS[2].instances[0].compute_instances[0].uuid


@pytest.mark.parametrize(
    ("selector", "index"),
    [
        ("0", 0),
        ("2", 2),
        ("GPU-5c8f2222-0000-4000-8000-000000000000", 1),
        ("gpu-5C8F2", 1),
        ("5c8f1", 0),
        ("12345678", 2),
        ("0000:0f:00.0", 1),
        ("0F:00.0", 1),
        ("00000000:17:00.0", 2),
        (str(MIG), 2),
        (str(MIG)[:12], 2),
    ],
)
def test_a_gpu_by_any_of_its_names(selector: str, index: int) -> None:
    assert select_gpu(GPUS, selector).index == index


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("3", "this machine has GPUs 0 to 2"),
        ("", "this machine has GPUs 0 to 2"),
        ("GPU-", "this machine has GPUs 0 to 2"),
        ("0000:0f:00.1", "did you mean"),
        ("GPU-5c8e", "this machine has GPUs 0 to 2"),
    ],
)
def test_nothing_by_that_name(selector: str, why: str) -> None:
    with pytest.raises(GpuNotFoundError) as caught:
        select_gpu(GPUS, selector)
    assert why in str(caught.value.why)
    assert caught.value.exit_code == 5


def test_a_prefix_of_two_is_not_guessed() -> None:
    with pytest.raises(GpuAmbiguousError) as caught:
        select_gpu(GPUS, "5c8f")
    assert "0 GPU-5c8f1111" in str(caught.value.why)
    assert "1 GPU-5c8f2222" in str(caught.value.why)


def test_no_gpus_at_all() -> None:
    with pytest.raises(GpuNotFoundError) as caught:
        select_gpu((), "0")
    assert caught.value.why == "this machine has no GPU"
