"""A small network, compiled by PyTorch and trained on "cuda" beside the CPU: cuBLAS multiplies, cuDNN convolves.

The losses must be alike at every step, and a step after the first two may wait at most four times for the host. Runs on
a simulated machine, too, where PyTorch's own kernels are not (they exist as machine code only), so that nothing may use
one: constants are not folded, nothing is padded, kernels are not timed. docs/libraries.md has the command.

usage: python bench/gpu/torch_compiled.py [mlp|cnn] [STEPS]
"""

# ruff: noqa: N806
import ctypes
import sys

import torch
import torch._inductor.config as inductor
from torch import nn
from torch._inductor.runtime import benchmarking

WAITS = 4

cuda = ctypes.CDLL("libcuda.so.1")
cuda.vgpumgr_channel_waits.restype = ctypes.c_uint64
inductor.joint_graph_constant_folding = False
inductor.shape_padding = False
type(benchmarking.benchmarker).benchmark_gpu = lambda _self, call, *_a, **_k: (call(), 1.0)[1]


def make_network(kind: str) -> nn.Module:
    """Two linear layers; or two convolutions, one of them normalised, with a linear layer."""
    if kind == "mlp":
        return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 3 * 3, 2),
    )


def make_data(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and the class of each."""
    x = torch.randn(64, 20) if kind == "mlp" else torch.randn(32, 3, 16, 16)
    first, second = (
        (x[:, 0], x[:, 1]) if kind == "mlp" else (x[:, 0].mean((1, 2)), x[:, 1].mean((1, 2)))
    )
    return x, (first * second > 0).long()


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "mlp"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    torch.manual_seed(0)
    x, y = make_data(kind)
    network, reference = make_network(kind), make_network(kind)
    reference.load_state_dict(network.state_dict())
    network = network.to("cuda")
    X, Y, one = x.to("cuda"), y.to("cuda"), torch.tensor(1.0).to("cuda")
    loss_of = nn.CrossEntropyLoss()
    rate = 0.5 if kind == "mlp" else 0.05
    sgd, reference_sgd = (torch.optim.SGD(n.parameters(), lr=rate) for n in (network, reference))
    forward = torch.compile(lambda x, y: loss_of(network(x), y))
    update = torch.compile(sgd.step)
    for step in range(steps):
        before = cuda.vgpumgr_channel_waits()
        sgd.zero_grad()
        loss = forward(X, Y)
        loss.backward(one)
        update()
        got = loss.item()
        waits = cuda.vgpumgr_channel_waits() - before
        reference_sgd.zero_grad()
        want = loss_of(reference(x), y)
        want.backward()
        reference_sgd.step()
        print(f"step {step}: cuda {got:.6f}, cpu {want.item():.6f}, {waits} waits", flush=True)
        assert abs(got - want.item()) < 1e-4, "the losses differ"
        assert step < 2 or waits <= WAITS, "it waits too often"


if __name__ == "__main__":
    main()
