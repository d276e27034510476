"""A warm training step of gpu/torch_compiled.py's language model: median seconds, waits for the host, and the loss.

usage: python -m bench.pytorch_step STEPS
"""

import json
import statistics
import sys
import time

import torch

from bench.gpu.torch_compiled import compile_step, count_waits, make_data, make_network

#: steps in which kernels are compiled and calls are of a new kind
WARM = 3


def main() -> None:
    torch.manual_seed(0)
    take_step = compile_step("gpt", make_network("gpt"), *make_data("gpt"))
    for _ in range(WARM):
        take_step()
    times, waits, loss = [], 0, 0.0
    for _ in range(int(sys.argv[1])):
        before, began = count_waits(), time.perf_counter()
        loss = take_step()
        times.append(time.perf_counter() - began)
        waits = max(waits, count_waits() - before)
    print(json.dumps({"seconds": statistics.median(times), "waits": waits, "loss": loss}))


if __name__ == "__main__":
    main()
