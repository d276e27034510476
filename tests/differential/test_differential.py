"""Random programs give the same directly and forwarded; ``python -m tests.differential`` runs more of them.

What they reach is gated: a generator that makes less of what there is shows less.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.differential.__main__ import TRANSPORTS, run, run_devices
from tests.differential.calls import BY_HAND, CALLS
from tests.differential.compare import compare, list_operations
from tests.differential.generate import generate
from vgpumgr.virtio.codegen.__main__ import load

pytestmark = pytest.mark.native

#: of mathematics libraries, not in sequences of the driver's functions: test_forwarded_blas.py, test_forwarded_dnn.py
MATHEMATICS = {
    f"math_{what}" for what in ("open", "create", "destroy", "call", "try", "ask", "make")
}
#: between two processes, which give the same directly and forwarded in test_ipc.py and test_shareable.py
PROCESSES = {
    *(f"ipc_{w}" for w in ("memory_export", "memory_open", "memory_close", "event_export", "event_open")),
    *(f"{w}_{way}" for w in ("virtual", "pool", "pool_memory") for way in ("export", "import")),
}  # fmt: skip
#: of the library of NVML, and of a function that is not forwarded: test_guest_nvml.py, test_sessions.py
OTHERS = {"device_use", "call_refused", *MATHEMATICS, *PROCESSES}
#: what the guest's driver asks by itself: what kernels print, and how what it posted has gone
BY_ITSELF = {"output_next", "capture_check"}
COUNT, SEED = 80, 100
#: of the functions that sequences are made of; and pairs, of which there are very many
FUNCTIONS, FAILING, PAIRS, OPERATION_PAIRS = 90, 60, 2200, 1300


def test_every_operation_of_the_description_is_in_the_sequences() -> None:
    below = list_operations()
    found = {o for name in (*CALLS, *BY_HAND) for o in below.get(name, ())}
    assert {o.name for o in load().operations} - found <= {*BY_ITSELF, *OTHERS}


def test_a_seed_is_a_sequence() -> None:
    assert generate(7) == generate(7) != generate(8)


def test_a_difference_is_noticed() -> None:
    sequence = generate(4)
    answers = [[0, 1]] * len(sequence["steps"])
    answer: dict[str, Any] = {
        "init": 0,
        "answers": answers,
        "order": {"0": [1, 2]},
        "printed": ["said 1"],
    }
    assert compare(sequence, answer, copy.deepcopy(answer)) is None
    for other in (
        answer | {"answers": [*answers[:-1], [0, 2]]},
        answer | {"order": {"0": [2, 1]}},
        answer | {"printed": []},
        {"died": 11},
    ):
        assert compare(sequence, answer, other) is not None


def test_two_devices_with_a_channel_each_give_what_they_give_directly() -> None:
    """Contexts are on either, memory is copied between them, streams wait for events of the other one."""
    reached, differences = run_devices(COUNT, SEED)
    assert not differences, str(differences[0])
    print(reached.describe())
    assert reached.calls["cuMemcpyPeer", True] >= 4
    assert reached.calls["cuStreamWaitEvent", True] >= 4
    assert len(reached.pairs) >= PAIRS, len(reached.pairs)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_forwarded_programs_give_what_direct_ones_give(transport: str) -> None:
    reached, differences = run(COUNT, SEED, transport)
    assert not differences, str(differences[0])
    good = {name for name, succeeded in reached.calls if succeeded}
    bad = {name for name, succeeded in reached.calls if not succeeded}
    missing = {o.name for o in load().operations} - reached.operations
    print(reached.describe())
    assert missing <= {"host_gate_open", "capture_check", *OTHERS}, (
        missing
    )  # follows from host_gate, in the guest's own time
    assert reached.printed > 0
    assert len(good) >= FUNCTIONS, sorted({*CALLS, *BY_HAND} - good)
    assert len(bad) >= FAILING, len(bad)
    assert len(reached.pairs) >= PAIRS, len(reached.pairs)
    assert len(reached.operation_pairs) >= OPERATION_PAIRS, len(reached.operation_pairs)
