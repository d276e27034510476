"""Calls into nvidia-ml-py, by name, with NVML's code kept when they fail.

Each symbol is tried when it is needed: the Python package may know functions that the driver lacks,
and the reverse.
"""

from __future__ import annotations

from typing import Any

import pynvml

from vgpumgr.host.helper import HelperFaultError

# What an optional fact may answer instead of a value.
_ABSENT = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
    }
)


def call(name: str, *args: Any) -> Any:
    """``pynvml.name(*args)``; raises HelperFaultError of kind ``nvml`` with code, text and
    function.
    """
    try:
        function = getattr(pynvml, name)
    except AttributeError:
        raise fault(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, name) from None
    try:
        return function(*args)
    except pynvml.NVMLError as error:
        raise fault(error.value, name) from error


def try_call(name: str, *args: Any) -> Any:
    """As ``call``, but None where this GPU, driver or user does not get the fact."""
    try:
        return call(name, *args)
    except HelperFaultError as error:
        if error.data["code"] in _ABSENT:
            return None
        raise


def fault(code: int, name: str) -> HelperFaultError:
    """The fault that crosses to the caller."""
    return HelperFaultError("nvml", {"code": code, "text": error_text(code), "call": name})


def error_text(code: int) -> str:
    """NVML's own words for a code, from the library where it is loaded."""
    try:
        return text(pynvml.nvmlErrorString(code))
    except pynvml.NVMLError:
        return str(pynvml.NVMLError(code))


def text(value: bytes | str) -> str:
    """Strings come as bytes or text, by version of the package."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
