"""Several hosts at once: their lists as one, each row with its host."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from vgpumgr.cli.arguments import GlobalOptions
from vgpumgr.cli.session import Backend
from vgpumgr.errors import UsageError, VgpumgrError

_AT_ONCE = 16


class FleetBackend:
    """Asks every host of ``--hosts``; only lists can be merged.

    Hosts that do not answer are handed to ``tell``: their error is the command's, as a list without
    them would look complete.
    """

    def __init__(
        self,
        options: GlobalOptions,
        open_daemon: Callable[[GlobalOptions], Backend],
        tell: Callable[[VgpumgrError], None],
    ) -> None:
        self._options = options
        self._open_daemon = open_daemon
        self._tell = tell

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """See ``session.Backend``. Raises the first error where no host answers."""
        if not operation.startswith("list_"):
            raise UsageError("--hosts goes with lists only", hint="--host NAME")
        hosts = dict.fromkeys(self._options.hosts)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = {host: pool.submit(self._ask, host, operation, params) for host in hosts}
        answers = {host: one.result() for host, one in asked.items() if _find_error(one) is None}
        errors = [error for one in asked.values() if (error := _find_error(one))]
        if errors and not answers:
            self._tell_all(errors[1:])
            raise errors[0]
        self._tell_all(errors)
        return merge(answers)

    def _tell_all(self, errors: list[VgpumgrError]) -> None:
        for error in errors:
            self._tell(error)

    def _ask(self, host: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            daemon = self._open_daemon(replace(self._options, host=host, hosts=()))
            return daemon.call(operation, **params)
        except VgpumgrError as error:
            if host not in error.error:
                error.error = f"{host}: {error.error}"
            raise


def _find_error(asked: Future[dict[str, Any]]) -> VgpumgrError | None:
    """Why a host has not answered; what is none of our errors is raised."""
    error = asked.exception()
    if error is None or isinstance(error, VgpumgrError):
        return error
    raise error


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
