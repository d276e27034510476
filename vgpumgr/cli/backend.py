"""The one module of the command line that loads the application into this process.

Everything else in ``cli`` sees documents as plain data, as they come over HTTP from a daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vgpumgr.cli.arguments import GlobalOptions
from vgpumgr.cli.session import Backend

if TYPE_CHECKING:
    from vgpumgr.daemon.application import Application


class LocalBackend:
    """Calls the application's methods by name and answers their documents as JSON-able data."""

    def __init__(self, application: Application) -> None:
        self._application = application

    def call(self, operation: str, **params: Any) -> dict[str, Any]:
        """See ``session.Backend``."""
        document = getattr(self._application, operation)(**params)
        data: dict[str, Any] = document.model_dump(mode="json", by_alias=True)
        return data


@contextmanager
def open_backend(options: GlobalOptions) -> Iterator[Backend]:
    """The application for the machine that the options name."""
    from vgpumgr.daemon.local import open_application

    with open_application(options.machine) as application:
        yield LocalBackend(application)
