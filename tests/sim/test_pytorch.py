"""PyTorch from PyPI on a slice of a simulated machine, unchanged, by ``vgpumgr run``.

Its compiled kernels are PTX and run; its own exist as machine code only, so no program here may need one of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.run_host import MACHINE, Host, read_line, wait_for
from tests.unit.transport_rig import LIB

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.native, pytest.mark.pytorch, pytest.mark.timeout(1200)]
TRAIN = str(ROOT / "bench/gpu/torch_compiled.py")
RUN = ("run", "--profile", "1g.10gb", "--")

#: products in a graph; what is copied, saved, loaded and refused; workers that read data, which are forked
PROGRAM = """
import io, torch
torch.manual_seed(1)
cpu = torch.randn(3, 48, 48)
device = cpu.to("cuda")
torch.testing.assert_close((device[0] @ device[1]).cpu(), cpu[0] @ cpu[1], rtol=1e-4, atol=1e-4)

a = torch.empty(48, 48, device="cuda")
torch.mm(device[0], device[1], out=a)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    b = torch.mm(device[0], device[1])
    c = torch.mm(b, device[2])
for turn in range(3):
    cpu[0] = torch.randn(48, 48)
    device[0].copy_(cpu[0])
    graph.replay()
    torch.testing.assert_close(c.cpu(), cpu[0] @ cpu[1] @ cpu[2], rtol=1e-3, atol=1e-2)
print("graphs replay")

network = torch.nn.Linear(48, 48).to("cuda")
file = io.BytesIO()
torch.save(network.state_dict(), file)
file.seek(0)
again = torch.load(file, map_location="cuda")
for name, value in network.state_dict().items():
    assert again[name].is_cuda and torch.equal(again[name].cpu(), value.cpu()), name
print("saved and loaded")

free, total = torch.cuda.mem_get_info()
assert free <= total < 10 << 30, (free, total)
try:
    torch.empty(total + (1 << 30), dtype=torch.uint8, device="cuda")
    raise SystemExit("more memory than the slice has")
except torch.OutOfMemoryError as error:
    assert "out of memory" in str(error)
assert torch.equal(torch.mm(device[1], device[2]).cpu(), torch.mm(device[1], device[2]).cpu())
print("out of memory, and on")

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, n):
        return torch.full((48,), float(n))
seen = 0.0
for rows in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2):
    seen += float((rows.to("cuda") @ device[2]).cpu()[0, 0] / cpu[2][:, 0].sum())
assert abs(seen - sum(range(0, 24, 4))) < 1e-2, seen
print("workers are forked")
"""
PARTS = ["graphs replay", "saved and loaded", "out of memory, and on", "workers are forked"]
#: cuFFT, without what PyTorch's own kernels would scale; waits of a new plan, and of ten executions
TRANSFORMS = """
import ctypes, torch
torch.manual_seed(2)
waits = ctypes.CDLL("libcuda.so.1").vgpumgr_channel_waits
def compare(function, *shape, dtype=torch.complex64, **options):
    values = torch.randn(*shape, dtype=dtype)
    got = function(values.to("cuda"), **options).cpu()
    torch.testing.assert_close(got, function(values, **options), rtol=1e-3, atol=1e-3)
compare(torch.fft.fft, 3, 45)
compare(torch.fft.fft2, 2, 12, 7)
compare(torch.fft.fftn, 4, 5, 6, dtype=torch.complex128)
compare(torch.fft.ifft, 3, 45, norm="forward")
compare(torch.fft.rfft, 3, 45, dtype=torch.float32)
compare(torch.fft.rfft2, 3, 10, 9, dtype=torch.float64)
compare(torch.fft.irfft, 3, 23, norm="forward")
device = torch.randn(3, 64, 31, dtype=torch.complex64).to("cuda")
torch.cuda.synchronize()
before = waits()
torch.fft.fft2(device)
made = waits()
for _ in range(10):
    torch.fft.fft2(device)
print(made - before, waits() - made)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = torch.fft.fft2(device)
values = torch.randn(3, 64, 31, dtype=torch.complex64)
device.copy_(values)
graph.replay()
torch.testing.assert_close(out.cpu(), torch.fft.fft2(values), rtol=1e-3, atol=1e-3)
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Host]:
    packages = os.environ.get("VGPUMGR_PYTORCH")
    if packages is None:
        pytest.skip("PyTorch is not set up: ./run test without --fast brings it")
    # short: the paths of sockets are limited
    with tempfile.TemporaryDirectory(prefix="vgt") as directory:
        host = Host(Path(directory))
        kept = {
            name: f"{directory}/{name}" for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
        }
        # one thread: what is measured here are results, and other tests run beside it
        host.env |= kept | {
            "PYTHONPATH": f"{packages}:{ROOT}", "TRITON_PTXAS_PATH": str(LIB / "sim/ptxas"),
            "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }  # fmt: skip
        for verb in ("start", "stop"):
            words = [sys.executable, "-m", "vgpumgr", "sim", verb, MACHINE]
            subprocess.run(words, env=host.env, check=True, capture_output=True, timeout=240)
            if verb == "start":
                yield host


@pytest.fixture
def host(machine: Host) -> Iterator[Host]:
    """With nothing left behind by a test."""
    yield machine
    for process in machine.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    machine.started.clear()
    machine.call("recover")
    assert machine.list_left() == {}


def test_the_demo_trains_two_networks_as_on_the_cpu(machine: Host) -> None:
    """The losses of every step, and at most four waits in each but the first two: its program sees to both."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo_pytorch"], cwd=ROOT, check=False, capture_output=True, text=True,
        env=machine.env | {"VGPUMGR_PYTORCH": machine.env["PYTHONPATH"].split(":")[0]}, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nstep 7: cuda ") == 2
    assert "[3., 3., 3.]" in done.stdout
    assert re.search(r"^python-\d+ +1g.10gb +", done.stdout, re.MULTILINE)
    assert "note: MIG mode is off" in done.stderr
    assert done.stdout.endswith("Nothing that was started is left running.\n")


def test_what_programs_do_beside_training(host: Host) -> None:
    done = host.call(*RUN, sys.executable, "-c", PROGRAM)
    assert done.stdout.splitlines() == PARTS


def test_fourier_transforms_are_the_cpus(host: Host) -> None:
    done = host.call(*RUN, sys.executable, "-c", TRANSFORMS)
    assert done.stdout == "1 0\n"


def test_one_is_killed_and_another_trains_on(host: Host) -> None:
    """Each on a slice of its own; nothing of the one that was killed in the middle of a step is left."""
    words = (*RUN, sys.executable, TRAIN, "mlp", "60")
    killed, other = host.start(*words), host.start(*words)
    while not read_line(killed).startswith("step 3:"):
        pass
    killed.kill()
    killed.wait()
    said, complaint = other.communicate(timeout=600)
    assert other.returncode == 0, complaint
    assert said.splitlines()[-1].startswith("step 59:")
    host.call("recover")
    wait_for(lambda: not host.list_left(), "all is given back")
