"""Changes of the pool by the API: the operations of the command line, in threads that wait for the store.

A store may not answer for a while. So these threads are no others', and those of tenants are apart. A tenant names and
changes its own claims only: its view of the pool has no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Body as JsonBody
from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from vgpumgr.app.documents import pool as documents
from vgpumgr.app.documents.base import Document
from vgpumgr.errors import (
    AccessDeniedError,
    DaemonBusyError,
    UsageError,
    VgpumgrError,
    explain_unexpected,
)
from vgpumgr.host.sockets import Peer
from vgpumgr.pool.membership import Pool, open_pool_of
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.pool.scope import TenantPool
from vgpumgr.server.access import find_scope
from vgpumgr.server.context import Context
from vgpumgr.server.pool_routes import ClaimName, TenantName
from vgpumgr.server.responses import answer_document

MODELS: dict[str, type[Document]] = {
    "create_claim": documents.ClaimShowDocument,
    "resize_claim": documents.ClaimShowDocument,
    "hold_claim": documents.ClaimShowDocument,
    "release_claim": documents.ClaimShowDocument,
    "delete_claim": documents.ClaimDeletedDocument,
    "create_tenant": documents.TenantShowDocument,
    "change_tenant": documents.TenantShowDocument,
    "delete_tenant": documents.TenantDeletedDocument,
}
#: changes at a time, of tenants and of others, and how many more may wait for their turn
_AT_ONCE = 4
_MAX_WAITING = 32
#: one member of an etcd is waited for no longer
_MEMBER_S = 5.0
_Text = Annotated[
    str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")
]
_Gpus = Annotated[int, Field(ge=1, le=64, description="how many GPUs of one host")]
_Profile = Annotated[_Text, Field(description="of each GPU: share:8GiB,30%, or whole")]
_Quota = Annotated[
    int | None, Field(ge=0, le=10**9, description="of GPUs, in thousandths; null: no limit")
]
_Priority = Annotated[int, Field(ge=-1000, le=1000, description="a higher one is granted first")]
_Weight = Annotated[int, Field(ge=1, le=1000, description="of equal priority, its part")]
Ask = Callable[[PoolOperations], dict[str, Any]]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class CreateClaimBody(_Body):
    """As ``vgpumgr claim create``. A tenant's claim is its own: ``tenant`` is that, or null."""

    name: _Text = Field(description="of the claim")
    profile: _Profile
    gpus: _Gpus = 1
    class_: _Text = Field(default="default", alias="class", description="how it is placed")
    if_lost: Literal["keep", "move"] = Field(
        default="keep", description="what becomes of it with its host"
    )
    tenant: _Text | None = Field(default=None, description="whose quota it has; null: of none")
    anti_affinity: _Text | None = Field(
        default=None, description="not on a host that has another claim of this group"
    )
    where: list[_Text] = Field(
        default=[], max_length=64, description="hosts, patterns of them, here for this one, any"
    )
    binding: Literal["reserve", "late"] = Field(
        default="reserve", description="late: it has a lease only while something wants it"
    )
    until: _Text | None = Field(
        default=None,
        description="the lease ends then: 2026-12-01T12:00, in the zone of the daemon's host",
    )
    for_: _Text | None = Field(
        default=None, alias="for", description="a lease ends so long after its grant: 2h, 90m"
    )
    preemptible_vm: bool = Field(
        default=False, description="preemption may also detach a VM that uses it"
    )


class ResizeClaimBody(_Body):
    """As ``vgpumgr claim resize``; null: as it is."""

    profile: _Profile | None = None
    gpus: _Gpus | None = None


class CreateTenantBody(_Body):
    """As ``vgpumgr tenant create``."""

    name: _Text = Field(description="of the tenant")
    quota_milli: _Quota = None
    priority: _Priority = 0
    weight: _Weight = 1
    preemptible: bool = Field(
        default=False, description="its leases may end for claims of a higher priority"
    )


class ChangeTenantBody(_Body):
    """As ``vgpumgr tenant set``; what is not there stays."""

    quota_milli: _Quota = None
    priority: _Priority = 0
    weight: _Weight = 1
    preemptible: bool = Field(
        default=False, description="its leases may end for claims of a higher priority"
    )


class PoolChanges:
    """The endpoints, each by the name of its operation."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # of tenants, and of others
        self._turns = {is_tenant: asyncio.Semaphore(_AT_ONCE) for is_tenant in (False, True)}
        self._waiting = {False: 0, True: 0}

    async def create_claim(
        self, request: Request, body: Annotated[CreateClaimBody, JsonBody()]
    ) -> Response:
        """A new claim."""
        scope = find_scope(request.state.peer)
        if scope is not None and body.tenant not in (None, scope):
            raise AccessDeniedError(
                f"{request.state.peer} makes no claims of tenant {body.tenant}",
                why=f"it is of tenant {scope}",
            )
        tenant = scope or body.tenant

        def create(pool: PoolOperations) -> dict[str, Any]:
            row = pool.create(
                body.name, body.class_, body.profile, body.gpus, body.if_lost, tenant, body.anti_affinity,
                body.where, late=body.binding == "late", until=body.until, duration=body.for_,
                preempt_vm=body.preemptible_vm,
            )  # fmt: skip
            return {"claim": row}

        return await self._change("create_claim", request, create, body.model_dump(by_alias=True))

    async def resize_claim(
        self, request: Request, claim: ClaimName, body: Annotated[ResizeClaimBody, JsonBody()]
    ) -> Response:
        """The claim, which has its new size, or says why it keeps what it has."""
        if body.profile is None and body.gpus is None:
            raise UsageError("resize to what?", hint="a profile, or a number of GPUs")
        return await self._change(
            "resize_claim",
            request,
            lambda pool: {"claim": pool.resize(claim, body.profile, body.gpus)},
            {"claim": claim, **body.model_dump()},
        )

    async def delete_claim(self, request: Request, claim: ClaimName) -> Response:
        """Whether the claim is gone, or its host still has to end what runs."""

        def delete(pool: PoolOperations) -> dict[str, Any]:
            is_gone, lost = pool.delete(claim)
            return {"claim": claim, "deleted": is_gone, "unheard_host": lost}

        return await self._change("delete_claim", request, delete, {"claim": claim})

    async def hold_claim(self, request: Request, claim: ClaimName) -> Response:
        """The claim, which has a lease on this host, or waits for one."""
        return await self._change(
            "hold_claim", request, lambda pool: {"claim": pool.bind(claim)}, {"claim": claim}
        )

    async def release_claim(self, request: Request, claim: ClaimName) -> Response:
        """The claim, whose lease ends."""
        return await self._change(
            "release_claim", request, lambda pool: {"claim": pool.release(claim)}, {"claim": claim}
        )

    async def create_tenant(
        self, request: Request, body: Annotated[CreateTenantBody, JsonBody()]
    ) -> Response:
        """A new tenant."""
        return await self._change(
            "create_tenant",
            request,
            lambda pool: {
                "tenant": pool.tenants.create(
                    body.name,
                    body.quota_milli,
                    body.priority,
                    body.weight,
                    preemptible=body.preemptible,
                )
            },
            body.model_dump(),
        )

    async def change_tenant(
        self, request: Request, tenant: TenantName, body: Annotated[ChangeTenantBody, JsonBody()]
    ) -> Response:
        """A tenant with other values of some fields."""
        names = {"quota_milli": "gpu_milli"}
        changes = {names.get(one, one): getattr(body, one) for one in body.model_fields_set}
        if not changes:
            raise UsageError("change what?", hint="quota_milli, priority, weight or preemptible")
        return await self._change(
            "change_tenant",
            request,
            lambda pool: {"tenant": pool.tenants.change(tenant, changes)},
            {"tenant": tenant, **changes},
        )

    async def delete_tenant(self, request: Request, tenant: TenantName) -> Response:
        """A tenant that is gone."""

        def delete(pool: PoolOperations) -> dict[str, Any]:
            pool.tenants.delete(tenant)
            return {"tenant": tenant, "deleted": True}

        return await self._change("delete_tenant", request, delete, {"tenant": tenant})

    async def _change(
        self, operation: str, request: Request, ask: Ask, params: dict[str, Any]
    ) -> Response:
        """Raises what the operation raises, AuditError, DaemonBusyError."""
        peer: Peer = request.state.peer
        self._context.access.authorize(peer, operation)
        scope = find_scope(peer)

        def work() -> Document:
            with open_pool_of(self._context.machine, _MEMBER_S) as pool:
                seen: Pool = pool if scope is None else TenantPool(pool, scope)
                return MODELS[operation].from_data(ask(PoolOperations(seen)))

        entry = {"event": "operation", **peer.identify(), "operation": operation, "params": params}
        entry["id"] = secrets.token_hex(8)
        async with self._take_turn(is_tenant=scope is not None):
            try:
                document = await run_in_thread(lambda: self._audited(entry, work))
            finally:
                self._context.pool.forget()
        return answer_document(document)

    @contextlib.asynccontextmanager
    async def _take_turn(self, *, is_tenant: bool) -> Any:
        if self._waiting[is_tenant] >= _MAX_WAITING:
            raise DaemonBusyError(
                "the daemon has too many changes of the pool already", hint="try again later"
            )
        self._waiting[is_tenant] += 1
        try:
            async with self._turns[is_tenant]:
                yield
        finally:
            self._waiting[is_tenant] -= 1

    def _audited(self, entry: dict[str, Any], work: Callable[[], Document]) -> Document:
        audit, failure = self._context.audit, "unexpected"
        audit.append(entry)
        try:
            document = work()
            failure = ""
            return document
        except VgpumgrError as error:
            failure = error.id
            raise
        finally:
            end = {
                "event": "end",
                "id": entry["id"],
                "outcome": "failed" if failure else "succeeded",
            }
            with contextlib.suppress(VgpumgrError):  # what was done is done; its begin is on record
                audit.append(end | {"error": failure or None})


async def run_in_thread(work: Callable[[], Document]) -> Document:
    """In a thread of its own, which no end of the daemon waits for. Raises what ``work`` raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Document | Exception] = loop.create_future()

    def end(result: Document | Exception) -> None:
        if not done.done():
            done.set_result(result)

    def run() -> None:
        result: Document | Exception
        try:
            result = work()
        except Exception as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the daemon has ended
            loop.call_soon_threadsafe(end, result)

    try:
        threading.Thread(target=run, name="pool-change", daemon=True).start()
    except RuntimeError as error:
        raise explain_unexpected(error, "changing the pool") from error
    result = await done
    if isinstance(result, Exception):
        raise result
    return result
