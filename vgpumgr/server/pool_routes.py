"""The pool that this host is in, as the API answers it: what the command line prints with ``-o json``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Body, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from vgpumgr.app.documents import pool as documents
from vgpumgr.app.documents.base import Document
from vgpumgr.pool.operations import PoolOperations
from vgpumgr.server.access import find_scope
from vgpumgr.server.context import Context
from vgpumgr.server.responses import encode_document

#: the document of each route
MODELS: dict[str, type[Document]] = {
    "show_pool": documents.PoolDocument,
    "list_pool_hosts": documents.PoolHostListDocument,
    "list_pool_classes": documents.PoolClassListDocument,
    "list_claims": documents.ClaimListDocument,
    "show_claim": documents.ClaimShowDocument,
    "explain_claim": documents.ClaimExplainDocument,
    "list_reservations": documents.ReservationListDocument,
    "show_reservation": documents.ReservationShowDocument,
    "list_tenants": documents.TenantListDocument,
    "show_tenant": documents.TenantShowDocument,
    "record_pool_command": documents.PoolCommandDocument,
}
_Name = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
ClaimName = Annotated[_Name, Path(description="name of the claim")]
ReservationName = Annotated[_Name, Path(description="name of the reservation")]
TenantName = Annotated[_Name, Path(description="name of the tenant")]


class PoolCommandBody(BaseModel):
    """A command that has changed the pool; one process of the host has run it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    words: list[Annotated[str, Field(max_length=512)]] = Field(
        min_length=1, max_length=64, description="of its line, without the program's name"
    )


class PoolRoutes:
    """The endpoints of the pool, each by the name of its operation. All of them ask one read of the store."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def show_pool(self) -> Response:
        """The pool, its hosts and totals."""
        return await self._answer("show_pool", lambda pool: pool.describe())

    async def list_pool_hosts(self) -> Response:
        """Every host, with what is free of its GPUs."""
        return await self._answer("list_pool_hosts", lambda pool: {"hosts": pool.list_hosts()})

    async def list_pool_classes(self) -> Response:
        """Every class."""
        return await self._answer(
            "list_pool_classes", lambda pool: {"classes": pool.classes.list_all()}
        )

    async def list_claims(self, request: Request) -> Response:
        """Every claim, in the order of the queue."""
        return await self._answer(
            "list_claims", lambda pool: {"claims": pool.list_claims()}, request=request
        )

    async def show_claim(self, request: Request, claim: ClaimName) -> Response:
        """One claim."""
        return await self._answer(
            "show_claim", lambda pool: {"claim": pool.show(claim)}, claim, request=request
        )

    async def explain_claim(self, request: Request, claim: ClaimName) -> Response:
        """One claim, and what each host would be for it."""

        def explain(pool: PoolOperations) -> dict[str, Any]:
            row, hosts = pool.explain(claim)
            return {"claim": row, "hosts": hosts, "preempts": pool.list_victims(claim)}

        return await self._answer("explain_claim", explain, claim, request=request)

    async def list_reservations(self) -> Response:
        """Every reservation, that which comes next first."""
        return await self._answer(
            "list_reservations", lambda pool: {"reservations": pool.reservations.list_all()}
        )

    async def show_reservation(self, reservation: ReservationName) -> Response:
        """One reservation."""
        return await self._answer(
            "show_reservation",
            lambda pool: {"reservation": pool.reservations.show(reservation)},
            reservation,
        )

    async def list_tenants(self, request: Request) -> Response:
        """Every tenant, and what it has."""
        return await self._answer(
            "list_tenants", lambda pool: {"tenants": pool.tenants.list_all()}, request=request
        )

    async def show_tenant(self, request: Request, tenant: TenantName) -> Response:
        """One tenant."""
        return await self._answer(
            "show_tenant",
            lambda pool: {"tenant": pool.tenants.show(tenant)},
            tenant,
            request=request,
        )

    async def record_pool_command(
        self, request: Request, body: Annotated[PoolCommandBody, Body()]
    ) -> Response:
        """Says who has run it, by the kernel's word. Raises AuditError."""
        entry = {"event": "pool-command", **request.state.peer.identify(), "words": body.words}
        await asyncio.to_thread(self._context.audit.append, entry)
        self._context.cache.forget()
        return Response(
            encode_document(documents.PoolCommandDocument(recorded=True)),
            media_type="application/json",
        )

    async def _answer(
        self,
        operation: str,
        ask: Callable[[PoolOperations], dict[str, Any]],
        *names: str,
        request: Request | None = None,
    ) -> Response:
        """A tenant's ``request`` is answered of its own claims. Raises what the operation raises, PoolNotFoundError,
        PoolStoreError.
        """
        scope = find_scope(request.state.peer) if request is not None else None
        snapshot = await self._context.pool.read()
        pool = snapshot.for_tenant(scope)
        asked = (operation, scope or "", *names)
        body = snapshot.find_body(asked)
        if body is None:

            def make() -> bytes:
                # the document refuses what the contract does not have
                return encode_document(MODELS[operation].from_data(ask(pool)))

            # a large pool takes a while, in which the loop answers others
            body = await asyncio.to_thread(make)
            snapshot.keep_body(asked, body)
        return Response(body, media_type="application/json")
