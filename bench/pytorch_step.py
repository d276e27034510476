"""A warm training step of torch_compiled.py's language model on "cuda": prints seconds, median, and waits for the host.

usage: python -m bench.pytorch_step STEPS
"""

import json
import statistics
import sys
import time

import torch
from torch import nn

# its settings, too: nothing that needs one of PyTorch's own kernels
from bench.gpu.torch_compiled import count_waits, make_data, make_network

WARM = 3


def main() -> None:
    steps = int(sys.argv[1])
    torch.manual_seed(0)
    x, y = make_data("gpt")
    network, x, y, one = (
        make_network("gpt").to("cuda"),
        x.to("cuda"),
        y.to("cuda"),
        torch.tensor(1.0).to("cuda"),
    )
    loss_of = nn.CrossEntropyLoss()
    sgd = torch.optim.SGD(network.parameters(), lr=0.02)
    forward = torch.compile(lambda x, y: loss_of(network(x), y))
    update = torch.compile(sgd.step)
    times, waits, loss = [], 0, 0.0
    for step in range(WARM + steps):
        before, began = count_waits(), time.perf_counter()
        sgd.zero_grad()
        lost = forward(x, y)
        lost.backward(one)
        update()
        loss = lost.item()
        if step >= WARM:
            times.append(time.perf_counter() - began)
            waits = max(waits, count_waits() - before)
    print(json.dumps({"seconds": statistics.median(times), "waits": waits, "loss": loss}))


if __name__ == "__main__":
    main()
