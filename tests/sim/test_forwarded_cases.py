"""The host's own tests of its mathematics libraries, which the guest's pass over a channel, too."""

from __future__ import annotations

import pytest

from tests.sim.forwarded import begin
from tests.sim.test_blas import cases_of
from tests.unit.calls_rig import run_python
from tests.unit.transport_rig import Rig

pytestmark = [pytest.mark.native, pytest.mark.cuda]

#: of cuDNN's, those that take the library from who calls them
DNN = (
    "dnn_backend.layouts", "dnn_backend.types", "dnn_norm.modes", "dnn_norm.types", "dnn_norm.plain",
    "dnn_norm.refused", "dnn_graphs.pointwise", "dnn_graphs.gradients", "dnn_graphs.settings", "dnn_graphs.products",
    "dnn_graphs.reductions", "dnn_graphs.fusion", "dnn_graphs.integers", "dnn_graphs.engines", "dnn_errors.setting",
    "dnn_errors.reading", "dnn_errors.tensors", "dnn_errors.convolutions", "dnn_errors.operations",
    "dnn_errors.graphs", "dnn_errors.plans", "dnn_errors.other_descriptors", "dnn_behaviour.streams",
    "dnn_behaviour.capture", "dnn_behaviour.wild_address", "dnn_behaviour.few_bytes", "dnn_behaviour.host_memory",
    "dnn_behaviour.workspace", "dnn_behaviour.lifetimes", "dnn_behaviour.threads", "dnn_behaviour.exit_in_work",
    "dnn_behaviour.without_context", "dnn_layers.convolutions", "dnn_layers.algorithms", "dnn_layers.biases",
    "dnn_layers.activations", "dnn_layers.simple", "dnn_layers.operations", "dnn_layers.reductions",
    "dnn_layers.softmax", "dnn_layers.pooling", "dnn_layers.dropout",
)  # fmt: skip
#: ``MODULE.CASE``; a module's name begins with that of its library
CASES = [
    *DNN,
    *(
        f"{library}_{kind}.{case}"
        for library in ("fft", "rand", "solver", "sparse")
        for kind in ("cases", "behaviour")
        for case in cases_of(f"{library}_{kind}")
    ),
]
#: of these, what is run over every transport
EVERYWHERE = [
    "dnn_backend.types", "dnn_norm.types", "dnn_graphs.fusion", "dnn_behaviour.capture",
    "fft_cases.simple", "fft_behaviour.capture", "rand_cases.published", "rand_behaviour.capture",
    "solver_cases.cholesky", "solver_behaviour.capture", "sparse_cases.sparse_products",
    "sparse_behaviour.capture",
]  # fmt: skip


@pytest.mark.parametrize("case", [c for c in CASES if c not in EVERYWHERE])
def test_the_hosts_tests_pass_in_a_guest(ring: Rig, case: str) -> None:
    run_case(ring, case)


@pytest.mark.parametrize("case", EVERYWHERE)
def test_they_pass_over_every_transport(rig: Rig, case: str) -> None:
    run_case(rig, case)


def run_case(rig: Rig, case: str) -> None:
    module, _, name = case.partition(".")
    library = module.partition("_")[0]
    code = f"from tests.sim import {module}\n{module}.{name}({library})\n"
    assert run_python(rig, begin(library) + code) == ""
