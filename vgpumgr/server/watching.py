"""Listening to libvirt and to the kernel, for as long as a daemon runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from vgpumgr.domain.events import LibvirtWatcher
from vgpumgr.host.machine import Machine
from vgpumgr.host.uevents import KernelUevents, UeventSource
from vgpumgr.server.context import Context
from vgpumgr.server.lifecycle import Lifecycle
from vgpumgr.server.reconciler import Reconciler, Tools
from vgpumgr.server.settings import Settings


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a daemon hears from; None: nowhere, its timer must do."""

    libvirt_uri: str | None = None
    open_uevents: Callable[[], UeventSource] | None = None


def find_sources(machine: Machine) -> Sources:
    """A machine's libvirt, and the kernel's events on a real one: a simulated one has none."""
    return Sources(machine.libvirt_uri, None if machine.is_simulated else KernelUevents)


@asynccontextmanager
async def watch(
    context: Context, settings: Settings, sources: Sources
) -> AsyncIterator[Reconciler]:
    """Looks again whenever something is heard, until the end of the block."""
    lanes = context.lanes
    tools = Tools(lanes.change, lanes.read, context.hub, context.audit, context.cache)
    lifecycle = Lifecycle(settings.release, context.clock)
    reconciler = Reconciler(tools, settings, lifecycle)
    running = asyncio.create_task(reconciler.run())
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(running.cancel)
        if sources.open_uevents is not None:
            # where this process may not listen, the timer does
            with contextlib.suppress(OSError):
                source = sources.open_uevents()
                stack.callback(source.close)
                stack.callback(reconciler.watch(source))
        if sources.libvirt_uri is not None:
            watcher = LibvirtWatcher(sources.libvirt_uri, reconciler)
            watcher.start()
            stack.push_async_callback(asyncio.to_thread, watcher.close)
        yield reconciler
