"""The pool of another host, by its daemon's API; see ``pool.operations``, whose methods these are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from vgpumgr.cli.http import HttpBackend
from vgpumgr.errors import (
    DaemonNotRunningError,
    PoolStoreError,
    RemoteHostError,
    UsageError,
)
from vgpumgr.model.routes import POOL
from vgpumgr.model.text import describe_waiting

_WAIT_S = 0.5
Row = dict[str, Any]


class RemotePool:
    """Operations on the pool that another host is in. Each raises what that host's daemon answers."""

    def __init__(self, backend: HttpBackend) -> None:
        self._backend = backend
        self.tenants = RemoteTenants(backend)

    def list_claims(self) -> list[Row]:
        """See ``PoolOperations``."""
        rows: list[Row] = self._backend.ask("GET", f"{POOL}/claims")["claims"]
        return rows

    def show(self, name: str) -> Row:
        """See ``PoolOperations``."""
        return self._change("GET", name)

    def explain(self, name: str) -> tuple[Row, list[Row]]:
        """See ``PoolOperations``."""
        found = self._backend.ask("GET", f"{_locate('claims', name)}/explain")
        return found["claim"], found["hosts"]

    def list_victims(self, name: str) -> list[Row]:
        """See ``PoolOperations``."""
        found = self._backend.ask("GET", f"{_locate('claims', name)}/explain")
        return list(found.get("preempts", ()))  # an older daemon preempts nothing

    def create(
        self,
        name: str,
        class_name: str,
        profile: str,
        gpus: int,
        if_lost: str,
        tenant: str | None = None,
        anti_affinity: str | None = None,
        where: Sequence[str] = (),
        late: bool = False,
        until: str | None = None,
        duration: str | None = None,
        preempt_vm: bool = False,
    ) -> Row:
        """See ``PoolOperations``; ``here`` is the other host, and ``until`` in its time zone."""
        body: Row = {
            "name": name, "class": class_name, "profile": profile, "gpus": gpus, "if_lost": if_lost, "tenant": tenant,
            "anti_affinity": anti_affinity, "where": list(where), "binding": "late" if late else "reserve",
        }  # fmt: skip
        # an older daemon knows none of these
        more = {"until": until, "for": duration, "preemptible_vm": preempt_vm}
        body |= {key: value for key, value in more.items() if value}
        row: Row = self._backend.ask("POST", f"{POOL}/claims", body)["claim"]
        return row

    def try_create(self, name: str, *_asked: Any, **_more: Any) -> tuple[Row, list[Row]]:
        """Not by the API. Raises UsageError."""
        raise UsageError(
            f"cannot try claim {name} on another host's daemon",
            why="--dry-run plans in the pool's store, which the hosts of the pool reach",
            hint="the same on a host of the pool, without --host",
        )

    def resize(self, name: str, profile: str | None, gpus: int | None) -> Row:
        """See ``PoolOperations``."""
        return self._change("PATCH", name, body={"profile": profile, "gpus": gpus})

    def bind(self, name: str) -> Row:
        """See ``PoolOperations``; the lease is on the other host."""
        return self._change("POST", name, "/hold", {})

    def release(self, name: str) -> Row:
        """See ``PoolOperations``."""
        return self._change("POST", name, "/release", {})

    def delete(self, name: str) -> tuple[bool, str | None]:
        """See ``PoolOperations``."""
        found = self._backend.ask("DELETE", _locate("claims", name))
        return found["deleted"], found["unheard_host"]

    def wait(self, name: str, timeout_s: float | None, report: Callable[[str], None]) -> Row:
        """See ``PoolOperations``."""
        from vgpumgr.host.clock import SystemClock

        clock, row, said = SystemClock(), self.show(name), ""
        text = describe_waiting(name, row["place"], row["why"])
        end_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
        while row["state"] == "waiting":
            if text != said:
                said = text
                report(text)
            left_s = _WAIT_S if end_s is None else end_s - clock.monotonic_s()
            if left_s <= 0:
                break
            clock.sleep(min(left_s, _WAIT_S))
            try:
                row = self.show(name)
                text = describe_waiting(name, row["place"], row["why"])
            except (PoolStoreError, RemoteHostError, DaemonNotRunningError) as error:
                text = f"claim {name} waits: {error}"
        return row

    def _change(self, method: str, name: str, verb: str = "", body: Row | None = None) -> Row:
        row: Row = self._backend.ask(method, f"{_locate('claims', name)}{verb}", body)["claim"]
        return row


class RemoteTenants:
    """See ``TenantOperations``."""

    def __init__(self, backend: HttpBackend) -> None:
        self._backend = backend

    def list_all(self) -> list[Row]:
        """See ``TenantOperations``."""
        rows: list[Row] = self._backend.ask("GET", f"{POOL}/tenants")["tenants"]
        return rows

    def show(self, name: str) -> Row:
        """See ``TenantOperations``."""
        row: Row = self._backend.ask("GET", _locate("tenants", name))["tenant"]
        return row

    def create(
        self,
        name: str,
        gpu_milli: int | None,
        priority: int,
        weight: int,
        *,
        preemptible: bool = False,
    ) -> Row:
        """See ``TenantOperations``."""
        body: Row = {"name": name, "quota_milli": gpu_milli, "priority": priority, "weight": weight}
        body |= {"preemptible": True} if preemptible else {}
        row: Row = self._backend.ask("POST", f"{POOL}/tenants", body)["tenant"]
        return row

    def change(self, name: str, changes: Mapping[str, int | None]) -> Row:
        """See ``TenantOperations``."""
        names = {"gpu_milli": "quota_milli"}
        body = {names.get(key, key): value for key, value in changes.items()}
        row: Row = self._backend.ask("PATCH", _locate("tenants", name), body)["tenant"]
        return row

    def delete(self, name: str) -> None:
        """See ``TenantOperations``."""
        self._backend.ask("DELETE", _locate("tenants", name))


def _locate(noun: str, name: str) -> str:
    return f"{POOL}/{noun}/{quote(name, safe='')}"
