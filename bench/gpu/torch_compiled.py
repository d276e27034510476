"""A small network, compiled by PyTorch and trained on "cuda" beside the CPU: cuBLAS multiplies, cuDNN convolves.

The losses must be alike at every step, and a step after the first two may wait at most four times for the host. Runs on
a simulated machine, too, where PyTorch's own kernels are not (they exist as machine code only), so that nothing may use
one: constants are not folded, nothing is padded, kernels are not timed. docs/libraries.md has the command.

usage: python bench/gpu/torch_compiled.py [mlp|cnn|gpt] [STEPS]
"""

import ctypes
import sys
from collections.abc import Callable

import torch
import torch._inductor.config as inductor
from torch import nn
from torch._inductor.runtime import benchmarking

WAITS = 4

cuda = ctypes.CDLL("libcuda.so.1")
try:
    cuda.vgpumgr_channel_waits.restype = ctypes.c_uint64
    count_waits = cuda.vgpumgr_channel_waits
except AttributeError:  # a driver, and no channel

    def count_waits() -> int:
        """How often this process has waited for the host."""
        return 0


inductor.joint_graph_constant_folding = False
inductor.shape_padding = False
type(benchmarking.benchmarker).benchmark_gpu = lambda _self, call, *_a, **_k: (call(), 1.0)[1]


LETTERS, LENGTH, WIDTH, HEADS = 16, 12, 32, 4


class Block(nn.Module):
    """A layer of a language model: attention to what came before, then two linear layers. Attention is written out:
    PyTorch's own kernels of it are machine code.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("before", torch.ones(LENGTH, LENGTH).tril() == 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.query(self.first(x)).view(len(x), LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5
        weights = weights.masked_fill(self.before, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(len(x), LENGTH, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Letters(nn.Module):
    """A language model of two layers, whose letters come as rows of one 1: looking rows up is a kernel of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = (
            nn.Linear(LETTERS, WIDTH),
            nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02),
        )
        self.layers = nn.Sequential(
            Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(self.letters(x) + self.places).view(-1, LETTERS)


def make_network(kind: str) -> nn.Module:
    """Two linear layers; two convolutions, one of them normalised, with a linear layer; or a small language model."""
    if kind == "gpt":
        return Letters()
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
    """Inputs, and the class of each; for the language model, the letter after each: three further on."""
    if kind == "gpt":
        text = (torch.randint(LETTERS, (16, 1)) + 3 * torch.arange(LENGTH + 1)) % LETTERS
        return nn.functional.one_hot(text[:, :-1], LETTERS).float(), text[:, 1:].reshape(-1)
    x = torch.randn(64, 20) if kind == "mlp" else torch.randn(32, 3, 16, 16)
    first, second = (
        (x[:, 0], x[:, 1]) if kind == "mlp" else (x[:, 0].mean((1, 2)), x[:, 1].mean((1, 2)))
    )
    return x, (first * second > 0).long()


#: such that a difference of a rounding does not grow for 50 steps
RATES = {"mlp": 0.5, "cnn": 0.05, "gpt": 0.01}
loss_of = nn.CrossEntropyLoss()


def compile_step(
    kind: str, network: nn.Module, x: torch.Tensor, y: torch.Tensor
) -> Callable[[], float]:
    """A step of training on "cuda": the loss before it, which is read back."""
    network, x, y, one = (what.to("cuda") for what in (network, x, y, torch.tensor(1.0)))
    sgd = torch.optim.SGD(network.parameters(), lr=RATES[kind])
    forward = torch.compile(lambda x, y: loss_of(network(x), y))
    update = torch.compile(sgd.step)

    def step() -> float:
        sgd.zero_grad()
        loss = forward(x, y)
        loss.backward(one)
        update()
        return loss.item()

    return step


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) > 1 else "mlp"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 30
    torch.manual_seed(0)
    x, y = make_data(kind)
    network, reference = make_network(kind), make_network(kind)
    reference.load_state_dict(network.state_dict())
    take_step = compile_step(kind, network, x, y)
    sgd = torch.optim.SGD(reference.parameters(), lr=RATES[kind])
    for step in range(steps):
        before = count_waits()
        got = take_step()
        waits = count_waits() - before
        sgd.zero_grad()
        want = loss_of(reference(x), y)
        want.backward()
        sgd.step()
        print(f"step {step}: cuda {got:.6f}, cpu {want.item():.6f}, {waits} waits", flush=True)
        assert abs(got - want.item()) < 1e-4, "the losses differ"
        assert step < 2 or waits <= WAITS, "it waits too often"


if __name__ == "__main__":
    main()
