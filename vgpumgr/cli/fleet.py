"""Several hosts at once: their lists as one, each row with its host."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from vgpumgr.cli.arguments import GlobalOptions
from vgpumgr.cli.session import Backend
from vgpumgr.errors import UsageError, VgpumgrError

_AT_ONCE = 16


class FleetBackend:
    """Asks every host of ``--hosts``; only lists can be merged."""

    def __init__(
        self, options: GlobalOptions, open_daemon: Callable[[GlobalOptions], Backend]
    ) -> None:
        self._options = options
        self._open_daemon = open_daemon

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """See ``session.Backend``. A host that does not answer is an error: a list without it would
        look complete.
        """
        if not operation.startswith("list_"):
            raise UsageError("--hosts goes with lists only", hint="--host NAME")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = [pool.submit(self._ask, h, operation, params) for h in self._options.hosts]
            documents = [future.result() for future in asked]
        return merge(dict(zip(self._options.hosts, documents, strict=True)))

    def _ask(self, host: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            daemon = self._open_daemon(replace(self._options, host=host, hosts=()))
            return daemon.call(operation, **params)
        except VgpumgrError as error:
            error.error = f"{host}: {error.error}"
            raise


def merge(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One document: lists joined, each entry with ``host``; what is no list, by host."""
    merged: dict[str, Any] = {}
    for host, document in documents.items():
        for key, value in document.items():
            if isinstance(value, list):
                merged.setdefault(key, []).extend({"host": host, **row} for row in value)
            elif key == "schema":
                merged[key] = value
            else:
                merged.setdefault(key, {})[host] = value
    return merged
