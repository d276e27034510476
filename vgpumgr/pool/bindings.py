"""What each GPU of a pool is leased for, and which VM or command has it: a row for each GPU of each lease."""

from __future__ import annotations

from typing import Any

from vgpumgr.pool.control.records import View


def list_bindings(view: View) -> list[dict[str, Any]]:
    """By host and GPU, and then by claim. ``used_by`` is None while nothing uses it; ``ending``: it is to end."""
    rows = []
    for lease in view.leases.values():
        claim = view.claims.get(lease.claim)
        uses = {use.number: use for use in view.list_uses(claim)} if claim is not None else {}
        for number, index in enumerate(lease.gpus):
            gpu, use = view.gpus.get(f"{lease.host}/{index:04}"), uses.get(number)
            rows.append(
                {
                    "host": lease.host,
                    "gpu_index": index,
                    "gpu_uuid": gpu.uuid if gpu else None,
                    "model": gpu.model if gpu else None,
                    "name": lease.claim,
                    "tenant": (claim.tenant if claim else "") or None,
                    "gpu_milli": lease.milli,
                    "memory_bytes": lease.memory_bytes,
                    "compute_percent": lease.compute_percent,
                    "ending": lease.is_ending,
                    "used_by": None
                    if use is None
                    else {"kind": use.noun, "name": use.name, "attachment": use.attachment},
                }
            )
    return sorted(rows, key=lambda row: (row["host"], row["gpu_index"], row["name"]))
