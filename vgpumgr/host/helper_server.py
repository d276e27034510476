"""The helper's side of ``helper``: what a helper process loads, and nothing more."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from vgpumgr.errors import find_lack


class HelperFaultError(Exception):
    """What a handler in the helper raised on purpose; ``kind`` says how to read ``data``."""

    def __init__(self, kind: str, data: Mapping[str, Any]) -> None:
        super().__init__(kind)
        self.kind = kind
        self.data = data


def serve(fd: int, handlers: object) -> None:
    """The helper's side: answers calls by the public methods of ``handlers`` until the other hangs
    up. An empty line first says that it is there.

    Ends the process without clean-up: what a driver library would do at exit may itself hang.
    """
    with socket.socket(fileno=fd) as connection, connection.makefile("rwb") as stream:
        stream.write(b"\n")
        stream.flush()
        for line in stream:
            request = json.loads(line)
            answer = _answer(handlers, request["method"], request["params"])
            stream.write(json.dumps(answer, default=_encode).encode() + b"\n")
            stream.flush()
    os._exit(0)


def _encode(value: object) -> Any:
    """A value of the model; most helpers answer plain data and do not need the codec."""
    from vgpumgr.model.codec import encode

    return encode(value)


def _answer(handlers: object, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    try:
        if method.startswith("_"):
            raise AttributeError(method)
        return {"result": getattr(handlers, method)(**params)}
    except HelperFaultError as fault:
        return {"fault": fault.kind, "data": dict(fault.data)}
    except Exception as error:
        if (lack := find_lack(error)) is not None:
            return {"fault": "lack", "data": {"why": lack, "cause": str(error)}}
        import traceback

        return {"fault": "bug", "data": {"traceback": traceback.format_exc()}}
