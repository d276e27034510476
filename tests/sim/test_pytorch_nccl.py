"""torch.distributed with NCCL: two processes of one guest, each on a slice of its own, equal to the CPU with gloo.

PyTorch's own kernels are machine code and do not run on a simulated machine: gradients are averaged by NCCL, in a hook,
and DistributedDataParallel does not send parameters around at the start.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pytorch import find_pytorch, torch_env
from tests.unit.several_rig import run_simulated

pytestmark = [pytest.mark.native, pytest.mark.pytorch, pytest.mark.timeout(600)]

PROGRAM = """
import copy, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
gloo = dist.new_group(backend="gloo")
torch.manual_seed(rank + 1)
cpu = torch.randn(1000)
device = cpu.to("cuda")
dist.all_reduce(device)
dist.all_reduce(cpu, group=gloo)
assert torch.equal(device.cpu(), cpu)
print("all_reduce")

one = torch.full((10,), float(rank)).to("cuda")
dist.broadcast(one, 1)
assert one.cpu().eq(1).all()
parts = [torch.empty(5, device="cuda") for _ in range(2)]
dist.all_gather(parts, torch.full((5,), float(rank)).to("cuda"))
assert [part.cpu()[4] for part in parts] == [0, 1]
whole = torch.arange(10.0)
half = torch.empty(5, device="cuda")
dist.reduce_scatter_tensor(half, whole.to("cuda"), op=dist.ReduceOp.AVG)
assert torch.equal(half.cpu(), whole[5 * rank : 5 * rank + 5])
turned = torch.empty(10, device="cuda")
dist.all_to_all_single(turned, whole.to("cuda"))
assert torch.equal(turned.cpu()[:5], whole[5 * rank : 5 * rank + 5])
print("broadcast all_gather reduce_scatter all_to_all")

letter = torch.full((7,), 5.0 + rank).to("cuda")
dist.send(letter, 1) if rank == 0 else dist.recv(letter, 0)
assert letter.cpu().eq(5).all()
there = torch.empty(1000, device="cuda")
both = [dist.P2POp(dist.isend, device, 1 - rank), dist.P2POp(dist.irecv, there, 1 - rank)]
for work in dist.batch_isend_irecv(both):
    work.wait()
assert torch.equal(there.cpu(), cpu)
print("send recv")

def average(_, bucket):
    work = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])

torch.manual_seed(0)
network = torch.nn.Linear(16, 16, bias=False)
same = copy.deepcopy(network)
network = network.to("cuda")
forwarded = DistributedDataParallel(network, device_ids=[rank], init_sync=False, gradient_as_bucket_view=True)
forwarded.register_comm_hook(None, average)
host = DistributedDataParallel(same, process_group=gloo)
torch.manual_seed(10 + rank)
for _ in range(3):
    values = torch.randn(8, 16)
    for model, on in ((forwarded, "cuda"), (host, "cpu")):
        for parameter in model.parameters():
            parameter.grad = None
        out = model(values.to(on))
        out.backward(torch.ones(8, 16).to(on))
    torch.testing.assert_close(network.weight.grad.cpu(), same.weight.grad, rtol=1e-4, atol=1e-5)
print("DistributedDataParallel")
dist.destroy_process_group()
"""
PARTS = [
    "all_reduce",
    "broadcast all_gather reduce_scatter all_to_all",
    "send recv",
    "DistributedDataParallel",
]


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_two_processes_on_two_slices_are_the_cpus(tmp_path: Path) -> None:
    if find_pytorch() is None:
        pytest.skip("PyTorch is not set up: ./run test without --fast brings it")
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_port()), "WORLD_SIZE": "2"}
    pipe = subprocess.PIPE
    with run_simulated("ring", tmp_path, machine="dgx-a100") as guest:
        env = guest.environment() | torch_env(tmp_path) | world | {"PATH": os.environ["PATH"]}
        both = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", PROGRAM], env=env | {"RANK": str(rank)},
                stdout=pipe, stderr=pipe, text=True,
            )
            for rank in range(2)
        ]  # fmt: skip
        for process in both:
            out, errors = process.communicate(timeout=300)
            assert (process.returncode, out.splitlines()) == (0, PARTS), errors
