"""The daemon and its API, metrics and the terminal's program."""

from __future__ import annotations

from vgpumgr.errors.base import Exit, VgpumgrError

# VG35x: the daemon and its API


class DaemonNotRunningError(VgpumgrError):
    """No daemon answers on its socket, and only a daemon can do this."""

    id = "VG350"
    http_status = 503


class DaemonRunningError(VgpumgrError):
    """Another daemon serves this machine."""

    id = "VG351"
    exit_code = Exit.BUSY
    http_status = 409


class PreconditionError(VgpumgrError):
    """What the request was made for has changed since (If-Match)."""

    id = "VG352"
    exit_code = Exit.BUSY
    http_status = 412


class AccessDeniedError(VgpumgrError):
    """This user may not do this: neither root nor in a group that may."""

    id = "VG353"
    exit_code = Exit.NOT_PERMITTED
    http_status = 403


class RouteNotFoundError(VgpumgrError):
    """The API has no such path."""

    id = "VG354"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class OperationNotFoundError(VgpumgrError):
    """No operation has this id, or it is long forgotten."""

    id = "VG355"
    exit_code = Exit.NOT_FOUND
    http_status = 404


class OperationCancelledError(VgpumgrError):
    """The operation was cancelled; what it had done was undone."""

    id = "VG356"
    exit_code = Exit.INTERRUPTED
    http_status = 409


class NotCancellableError(VgpumgrError):
    """The operation has ended, or cannot be undone half-way and must run to its end."""

    id = "VG357"
    exit_code = Exit.BUSY
    http_status = 409


class RequestTooLargeError(VgpumgrError):
    """The request is larger than any sensible one."""

    id = "VG358"
    exit_code = Exit.USAGE
    http_status = 413


class DaemonBusyError(VgpumgrError):
    """The daemon is stopping, or has too much to do already."""

    id = "VG359"
    exit_code = Exit.BUSY
    http_status = 503


class DaemonAnswerError(VgpumgrError):
    """The daemon's answer cannot be read: cut off, or not of this API."""

    id = "VG360"
    http_status = 502


class RemoteHostError(VgpumgrError):
    """Another host cannot be reached, or does not prove that it is the one that is meant."""

    id = "VG361"
    http_status = 502


class InterruptedOperationError(VgpumgrError):
    """The daemon ended while the operation ran."""

    id = "VG362"
    http_status = 500


class AuditError(VgpumgrError):
    """The audit log cannot be written; nothing is changed without it."""

    id = "VG363"
    http_status = 503


class MethodNotAllowedError(RouteNotFoundError):
    """The API has this path, but not with this method."""

    id = "VG364"
    exit_code = Exit.USAGE
    http_status = 405


class SettingsError(VgpumgrError):
    """The daemon's settings cannot be read: no TOML, an unknown key, or a value that cannot be."""

    id = "VG365"
    exit_code = Exit.USAGE
    http_status = 500


class TooManyRequestsError(VgpumgrError):
    """This user has as many connections, requests or event streams as one user may have."""

    id = "VG366"
    exit_code = Exit.BUSY
    http_status = 429


class RequestTimeoutError(VgpumgrError):
    """The request did not arrive in time."""

    id = "VG367"
    http_status = 408
