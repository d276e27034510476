"""The web page's files below ``/ui``, as they were built into ``vgpumgr/_web``; no other file can be named."""

from __future__ import annotations

import re
from pathlib import Path

from vgpumgr.errors import MethodNotAllowedError, RouteNotFoundError
from vgpumgr.host.machine import WEB_DIR
from vgpumgr.model.frozen import dataclass
from vgpumgr.model.page import PAGE, SECURITY_HEADERS

#: what the build names a file; neither a path nor an escape of one
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
_METHODS = ["GET", "HEAD"]


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What a browser gets."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""


class Page:
    """The files of one bundle. They are read when asked for: a new build needs no new daemon."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory or WEB_DIR

    @staticmethod
    def serves(raw_path: bytes) -> bool:
        """Whether a path belongs to the page, compared as it arrives."""
        return raw_path == PAGE.encode() or raw_path.startswith(PAGE.encode() + b"/")

    def find(self, method: str, raw_path: bytes) -> PageAnswer:
        """The file of a path. Raises RouteNotFoundError, MethodNotAllowedError."""
        path = raw_path.decode("latin-1").removeprefix(PAGE)
        file = self._find_file(path)
        if method not in _METHODS:
            error = MethodNotAllowedError(
                "the web page has no such method", why=f"it has {', '.join(_METHODS)}"
            )
            error.allowed = _METHODS
            raise error
        if not path:
            return PageAnswer(308, (("Location", f"{PAGE}/"), *SECURITY_HEADERS))
        # the name of an asset changes with its content
        kept = "no-cache" if path == "/" else "public, max-age=31536000, immutable"
        headers = (("Content-Type", _KINDS[file.suffix]), ("Cache-Control", kept))
        try:
            return PageAnswer(200, (*headers, *SECURITY_HEADERS), file.read_bytes())
        except OSError as error:  # a new build has just replaced it
            raise _not_found() from error

    def _find_file(self, path: str) -> Path:
        index = self._directory / "index.html"
        if not index.is_file():
            raise RouteNotFoundError(
                "the web page was not built here",
                cause=f"there is no {index}",
                hint="./run setup, where the program runs from its source; else the package vgpumgr",
            )
        if path in ("", "/"):
            return index
        name = path.removeprefix("/assets/")
        file = self._directory / "assets" / name
        if name == path or not _NAME.fullmatch(name) or file.suffix not in _KINDS:
            raise _not_found()
        if file.is_symlink() or not file.is_file():
            raise _not_found()
        return file


def _not_found() -> RouteNotFoundError:
    return RouteNotFoundError("the web page has no such file", hint=f"{PAGE}/")
