"""PyTorch on the first GPU, step by step: each prints a line of JSON. No step uses a library of the vendor's mathematics
unless its name says so. Run it directly, and with the guest's libraries in front.

usage: python3 bench/gpu/torch_steps.py [STEP...]
"""

# ruff: noqa: ARG005, E501, N812
import json
import os
import sys
import time
import traceback

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"/tmp/inductor-{os.getpid()}")
os.environ.setdefault("TRITON_CACHE_DIR", f"/tmp/triton-{os.getpid()}")
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda"


def about() -> dict[str, object]:
    free, total = torch.cuda.mem_get_info()
    p = torch.cuda.get_device_properties(0)
    return {
        "torch": torch.__version__,
        "name": p.name,
        "total": total,
        "free": free,
        "count": torch.cuda.device_count(),
    }


def operations() -> dict[str, object]:
    """Eager kernels against the CPU."""
    torch.manual_seed(1)
    x, y = torch.randn(257, 129), torch.rand(257, 129) + 0.5
    i = torch.randint(0, 257, (300,))
    table = {
        "add": lambda a, b, i: a + b, "mul_scalar": lambda a, b, i: a * 3 + 1, "div": lambda a, b, i: a / b,
        "exp": lambda a, b, i: a.exp(), "log": lambda a, b, i: b.log(), "tanh": lambda a, b, i: a.tanh(),
        "pow": lambda a, b, i: b**1.7, "sum": lambda a, b, i: a.sum(), "sum_dim": lambda a, b, i: a.sum(0),
        "mean": lambda a, b, i: a.mean(1), "max": lambda a, b, i: a.max(1).values, "argmax": lambda a, b, i: a.argmax(1),
        "var": lambda a, b, i: a.var(1), "norm": lambda a, b, i: a.norm(), "softmax": lambda a, b, i: a.softmax(1),
        "log_softmax": lambda a, b, i: a.log_softmax(1), "layer_norm": lambda a, b, i: F.layer_norm(a, (129,)),
        "gelu": lambda a, b, i: F.gelu(a), "silu": lambda a, b, i: F.silu(a), "relu": lambda a, b, i: a.relu(),
        "sort": lambda a, b, i: a.sort(1).values, "topk": lambda a, b, i: a.topk(5, 1).values,
        "cumsum": lambda a, b, i: a.cumsum(1), "index_select": lambda a, b, i: a.index_select(0, i),
        "gather": lambda a, b, i: a.gather(0, i[:200].reshape(-1, 1).expand(200, 129)),
        "scatter_add": lambda a, b, i: torch.zeros(257, 129, device=a.device).index_add(0, i[:257], a),
        "where": lambda a, b, i: torch.where(a > 0, a, b), "cat": lambda a, b, i: torch.cat([a, b]),
        "transpose": lambda a, b, i: a.t().contiguous(), "clamp": lambda a, b, i: a.clamp(-0.5, 0.5),
        "embedding": lambda a, b, i: F.embedding(i, a), "cross_entropy": lambda a, b, i: F.cross_entropy(a, i[:257] % 129),
        "unique": lambda a, b, i: i.unique(), "nonzero": lambda a, b, i: (a > 0).nonzero(),
        "masked_select": lambda a, b, i: a.masked_select(a > 0), "half": lambda a, b, i: (a.half() + b.half()).float(),
        "bfloat16": lambda a, b, i: (a.bfloat16() * b.bfloat16()).float(), "int": lambda a, b, i: (i * 7) // 3 % 5,
        "max_pool": lambda a, b, i: F.max_pool2d(a[None, None], 3), "pad": lambda a, b, i: F.pad(a, (1, 2, 3, 4)),
        "flip": lambda a, b, i: a.flip(0), "roll": lambda a, b, i: a.roll(3, 1), "erf": lambda a, b, i: a.erf(),
        "histc": lambda a, b, i: a.histc(10, -3, 3), "searchsorted": lambda a, b, i: torch.searchsorted(b[0].sort().values, a),
        "interpolate": lambda a, b, i: F.interpolate(a[None, None], scale_factor=2, mode="bilinear"),
        "group_norm": lambda a, b, i: F.group_norm(a[None, :256], 8), "batch_norm": lambda a, b, i: nn.BatchNorm1d(129).to(a.device)(a),
    }  # fmt: skip
    right, wrong = [], {}
    for name, f in table.items():
        try:
            want, got = f(x, y, i), f(x.to(DEVICE), y.to(DEVICE), i.to(DEVICE)).cpu()
            torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)
            right.append(name)
        except Exception as error:
            wrong[name] = repr(error)[:200]
    return {"right": len(right), "of": len(table), "wrong": wrong}


def random_numbers() -> dict[str, object]:
    torch.manual_seed(5)
    x = torch.randn(1 << 16, device=DEVICE)
    drop = F.dropout(torch.ones(1 << 16, device=DEVICE), 0.25)
    return {
        "first": x[:4].tolist(),
        "mean": x.mean().item(),
        "std": x.std().item(),
        "kept": (drop > 0).float().mean().item(),
    }


def backward() -> dict[str, object]:
    """Automatic differentiation and a fused optimizer over elementwise layers."""
    losses = {}
    for where in ("cpu", DEVICE):
        torch.manual_seed(3)
        w, b = (
            torch.randn(64).to(where).requires_grad_(),
            torch.zeros(64).to(where).requires_grad_(),
        )
        x = torch.randn(256, 64).to(where)
        step = torch.optim.AdamW([w, b], lr=0.05)
        for _ in range(20):
            step.zero_grad()
            loss = ((F.gelu(x * w + b) - x.sin()) ** 2).mean()
            loss.backward()
            step.step()
        losses[where] = loss.item()
    return {**losses, "alike": abs(losses["cpu"] - losses[DEVICE]) < 1e-4}


def compiled() -> dict[str, object]:
    """torch.compile with Triton's matrix products."""
    import torch._inductor.config as config

    config.max_autotune_gemm = True
    config.max_autotune_gemm_backends = "TRITON"
    config.autotune_in_subproc = False
    losses = {}
    for where in ("cpu", DEVICE):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)).to(where)
        x, t = torch.randn(256, 64).to(where), torch.randint(0, 16, (256,)).to(where)
        step = torch.optim.SGD(model.parameters(), lr=0.2)

        def train(x, t, model=model):
            return F.cross_entropy(model(x), t)

        run = torch.compile(train) if where == DEVICE else train
        start = time.perf_counter()
        for turn in range(60):
            step.zero_grad()
            loss = run(x, t)
            loss.backward()
            step.step()
            if turn == 9:
                loss.item()
                first, start = time.perf_counter() - start, time.perf_counter()
        losses[where] = loss.item()
    return {**losses, "first_10_s": first, "step_s": (time.perf_counter() - start) / 50,
            "alike": abs(losses["cpu"] - losses[DEVICE]) < 5e-3}  # fmt: skip


def graphs() -> dict[str, object]:
    x = torch.zeros(1 << 16, device=DEVICE)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            y = (x + 1).tanh().mul(2)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(50):
            y = (y + 1).tanh()
    x.fill_(0.5)
    graph.replay()
    want = torch.full((4,), 0.5)
    for _ in range(50):
        want = (want + 1).tanh()
    torch.testing.assert_close(y[:4].cpu(), want)
    start = time.perf_counter()
    for _ in range(200):
        graph.replay()
    torch.cuda.synchronize()
    return {"replay_of_100_kernels_s": (time.perf_counter() - start) / 200}


def rates() -> dict[str, object]:
    """Eager kernels and copies."""
    x = torch.zeros(1024, device=DEVICE)
    for _ in range(3):
        x.add_(1)
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20000):
        x.add_(1)
    torch.cuda.synchronize()
    eager = 20000 / (time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(500):
        x.sum().item()
    item = (time.perf_counter() - start) / 500
    host = torch.zeros(64 << 20, dtype=torch.uint8).pin_memory()
    device = host.to(DEVICE)
    torch.cuda.synchronize()
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        device.copy_(host, non_blocking=True)
        torch.cuda.synchronize()
        best = max(best, (64 << 20) / (time.perf_counter() - start))
    return {"eager_adds_per_s": eager, "sum_item_s": item, "pinned_copy": best}


def cublas() -> dict[str, object]:
    """A matrix product of the vendor's library: what becomes of it."""
    a = torch.randn(128, 128)
    return {"error": (a.to(DEVICE) @ a.to(DEVICE)).cpu().sub(a @ a).abs().max().item()}


def cublas_types() -> dict[str, object]:
    """Products of all kinds against the CPU's: layers with a bias, batches, halves, complex numbers, vectors."""
    torch.manual_seed(2)
    a, b, bias = torch.randn(65, 33), torch.randn(33, 40), torch.randn(40)
    x, y = torch.randn(6, 8, 9), torch.randn(6, 9, 5)
    plain = {
        "half": torch.half,
        "bfloat16": torch.bfloat16,
        "double": torch.double,
        "complex": torch.complex64,
    }
    table = {
        "mm": (torch.mm, a, b), "addmm": (lambda p, q: F.linear(p, q, bias.to(p.device)), a, b.t().contiguous()),
        "bmm": (torch.bmm, x, y), "mv": (torch.mv, a, b[:, 0].contiguous()),
        "dot": (torch.dot, a[:, 0].contiguous(), a[:, 1].contiguous()),
        **{name: (torch.mm, a.to(kind), b.to(kind)) for name, kind in plain.items()},
    }  # fmt: skip
    worst = {
        name: (f(p.to(DEVICE), q.to(DEVICE)).cpu() - f(p, q)).abs().max().item()
        for name, (f, p, q) in table.items()
    }
    return {"worst": worst, "alike": all(d < 0.3 for d in worst.values())}


def cublas_training() -> dict[str, object]:
    """A small transformer, trained eagerly: losses beside the CPU's, seconds of a step."""
    losses = {}
    for where in ("cpu", DEVICE):
        torch.manual_seed(4)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Linear(32, 8)).to(where)
        x, t = torch.randn(16, 24, 32).to(where), torch.randint(0, 8, (16, 24)).to(where)
        step = torch.optim.AdamW(model.parameters(), lr=0.01)
        for turn in range(40):
            if turn == 10:
                start = time.perf_counter()
            step.zero_grad()
            loss = F.cross_entropy(model(x).flatten(0, 1), t.flatten())
            loss.backward()
            step.step()
        losses[where] = loss.item()
    return {**losses, "step_s": (time.perf_counter() - start) / 30,
            "alike": abs(losses["cpu"] - losses[DEVICE]) < 5e-3}  # fmt: skip


def cublas_rate() -> dict[str, object]:
    """Products that wait for nothing, and one with its wait."""
    a = torch.randn(64, 64, device=DEVICE)
    out = torch.empty_like(a)
    torch.mm(a, a, out=out)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(20000):
        torch.mm(a, a, out=out)
    torch.cuda.synchronize()
    posted = 20000 / (time.perf_counter() - start)
    start = time.perf_counter()
    for _ in range(500):
        torch.mm(a, a, out=out)
        torch.cuda.synchronize()
    return {"products_per_s": posted, "with_a_wait_s": (time.perf_counter() - start) / 500}


CUBLAS = [cublas, cublas_types, cublas_training, cublas_rate]
STEPS = [about, operations, random_numbers, backward, graphs, rates, compiled, *CUBLAS]


def main() -> None:
    for step in STEPS:
        if len(sys.argv) > 1 and step.__name__ not in sys.argv[1:]:
            continue
        start = time.perf_counter()
        try:
            found = {"step": step.__name__, **step()}
        except BaseException:
            found = {"step": step.__name__, "failed": traceback.format_exc()[-1500:]}
        print(json.dumps({**found, "s": round(time.perf_counter() - start, 3)}), flush=True)


if __name__ == "__main__":
    main()
