"""PyTorch from PyPI on a slice of a simulated machine, unchanged, by ``vgpumgr run``.

Its compiled kernels are PTX and run; its own exist as machine code only, so no program here may need one of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pytorch import ROOT, TRAIN, find_pytorch, torch_env
from tests.support.run_host import Host, end_all, started_machine

pytestmark = [pytest.mark.native, pytest.mark.pytorch, pytest.mark.timeout(1200)]
TRAIN_PATH = str(ROOT / TRAIN)
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

#: cuSOLVER, of a matrix with columns first, which no kernel of PyTorch's has to turn; waits of ten calls
SOLVERS = """
import ctypes, torch
torch.manual_seed(3)
torch.backends.cuda.preferred_linalg_library("cusolver")
waits = ctypes.CDLL("libcuda.so.1").vgpumgr_channel_waits
for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
    values = torch.randn(24, 24, dtype=dtype)
    device = values.mT.contiguous().to("cuda").mT
    factors, pivots, info = torch.linalg.lu_factor_ex(device)
    want = torch.linalg.lu_factor_ex(values)
    torch.testing.assert_close(factors.cpu(), want.LU, rtol=1e-3, atol=1e-3)
    assert torch.equal(pivots.cpu(), want.pivots) and not info.cpu().item()
torch.cuda.synchronize()
before = waits()
for _ in range(10):
    torch.linalg.lu_factor_ex(device)
print(waits() - before)
"""

#: cuSPARSE, with results that no kernel of PyTorch's has to fill; waits of ten products
SPARSE = """
import ctypes, torch
torch.manual_seed(4)
waits = ctypes.CDLL("libcuda.so.1").vgpumgr_channel_waits
for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float16, torch.bfloat16):
    values = torch.randn(8, 12, dtype=dtype) * (torch.rand(8, 12) < 0.4)
    right, vector = torch.randn(12, 5, dtype=dtype), torch.randn(12, dtype=dtype)
    device, factor = values.to_sparse_csr().to("cuda"), right.to("cuda")
    out = torch.empty(8, 5, dtype=dtype, device="cuda")
    torch.addmm(out, device, factor, beta=0, out=out)
    torch.testing.assert_close(out.cpu(), values @ right, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close((device @ vector.to("cuda")).cpu(), values @ vector, rtol=1e-2, atol=1e-2)
    if dtype in (torch.float16, torch.bfloat16):
        continue
    lower = torch.tril(torch.randn(8, 8, dtype=dtype)) + 8 * torch.eye(8, dtype=dtype)
    known = torch.randn(8, 2, dtype=dtype)
    system = lower.to_sparse_csr().to("cuda")
    solved = torch.triangular_solve(known.to("cuda"), system, upper=False).solution
    torch.testing.assert_close(solved.cpu(), torch.linalg.solve(lower, known), rtol=1e-3, atol=1e-3)
torch.cuda.synchronize()
before = waits()
for _ in range(10):
    torch.addmm(out, device, factor, beta=0, out=out)
print(waits() - before)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    if find_pytorch() is None:
        pytest.skip("PyTorch is not set up: ./run test without --fast brings it")
    with started_machine(torch_env(tmp_path_factory.mktemp("kept"))) as host:
        yield host


@pytest.fixture
def host(machine: Host) -> Iterator[Host]:
    """With nothing left behind by a test."""
    yield machine
    end_all(machine)


def test_the_demo_trains_two_networks_as_on_the_cpu(machine: Host) -> None:
    """The losses of every step, and at most four waits in each but the first two: its program sees to both."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.demo_pytorch"], cwd=ROOT, env=machine.env, check=False,
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(
        r"^step (\d+): cuda (\S+), cpu (\S+), (\d+) waits$", done.stdout, re.MULTILINE
    )
    assert [int(step) for step, *_ in steps] == [*range(8), *range(40)]
    assert all(abs(float(cuda) - float(cpu)) < 1e-4 for _, cuda, cpu, _ in steps)
    assert all(int(waits) <= 4 for step, _, _, waits in steps if int(step) >= 2)
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


def test_factors_of_matrices_are_the_cpus(host: Host) -> None:
    """Of torch.linalg this is what needs none of PyTorch's own kernels."""
    done = host.call(*RUN, "env", "VGPUMGR_TRACE=waits", sys.executable, "-c", SOLVERS)
    assert done.stdout == "0\n"
    assert "cusolverDnZgetrf" in done.stderr


def test_products_of_sparse_tensors_are_the_cpus(host: Host) -> None:
    """Of torch.sparse this is what needs none of PyTorch's own kernels."""
    done = host.call(*RUN, "env", "VGPUMGR_TRACE=waits", sys.executable, "-c", SPARSE)
    assert done.stdout == "0\n"
    assert "cusparseSpSM_bufferSize" in done.stderr


#: tensors of the GPU through queues of torch.multiprocessing, there and back; who gets one writes to it
SHARED = """
import torch, torch.multiprocessing as processes

def work(tensors, answers):
    one, part = tensors.get()
    assert one.is_cuda and part.data_ptr() == one.data_ptr() + 4 * 64 * 8, (one, part)
    answers.put((float(one.cpu().sum()), float(part.cpu()[0, 0])))
    one.copy_(torch.full((64, 64), 5.0))
    torch.cuda.synchronize()
    answers.put("written")
    answers.put(torch.arange(12.0).to("cuda"))
    tensors.get()

if __name__ == "__main__":
    context = processes.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    worker = context.Process(target=work, args=(tensors, answers))
    worker.start()
    values = torch.arange(4096.0).reshape(64, 64)
    device = values.to("cuda")
    tensors.put((device, device[8:16]))
    assert answers.get() == (float(values.sum()), 512.0)
    assert answers.get() == "written"
    assert torch.equal(device.cpu(), torch.full((64, 64), 5.0))
    back = answers.get()
    assert torch.equal(back.cpu(), torch.arange(12.0))
    del back
    tensors.put(None)
    worker.join()
    print("shared", worker.exitcode)
"""

#: two programs on one slice; one is killed in the middle of its steps, in no function of its own
KILL = """
"$0" "$1" mlp 100000 >"$2/killed" & killed=$!
"$0" "$1" mlp 300 >"$2/other" & other=$!
until grep -q '^step 5:' "$2/killed" && grep -q '^step 5:' "$2/other"; do sleep 0.05; done
kill -KILL $killed; wait $killed; echo "killed $?"
grep -c '^step 299:' "$2/other"
wait $other; echo "other $?"
grep -c '^step 299:' "$2/other"
"""


def test_one_is_killed_and_its_neighbour_trains_on(host: Host, tmp_path: Path) -> None:
    """Both have the same worker: the losses of the other are right to its end, and nothing is left of either."""
    done = host.call(*RUN, "bash", "-c", KILL, sys.executable, TRAIN_PATH, str(tmp_path))
    assert done.stdout.split("\n") == ["killed 137", "0", "other 0", "1", ""]
    assert host.list_left() == {}


def test_tensors_go_through_queues_of_processes(host: Host, tmp_path: Path) -> None:
    program = tmp_path / "shared.py"
    program.write_text(SHARED)
    done = host.call(*RUN, sys.executable, str(program))
    assert done.stdout == "shared 0\n", done.stderr
    assert host.list_left() == {}
