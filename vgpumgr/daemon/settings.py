"""The daemon's settings: a TOML file that need not be there. What a key means: docs/daemon.md."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vgpumgr.errors import SettingsError


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReconcileSettings(_Table):
    """``[reconcile]``: how often everything is looked at though nothing was heard."""

    #: 0: never by time alone
    interval_s: float = Field(default=60, ge=0)
    #: how much of the interval chance adds or takes, so that many hosts do not look at once
    jitter: float = Field(default=0.1, ge=0, le=0.5)


class ReleaseSettings(_Table):
    """``[release]``: when a VM loses what it has without anybody's asking."""

    undefined: bool = True
    stopped: bool = False
    migrated: bool = True
    #: an undefined VM may be defined again at once: that is how some tools change one
    delay_s: float = Field(default=10, ge=0)


class RepairSettings(_Table):
    """``[repair]``: what is made good that was perhaps meant."""

    #: devices that a definition has lost, to a snapshot for instance
    devices: bool = False


class Settings(_Table):
    """All of the file."""

    reconcile: ReconcileSettings = ReconcileSettings()
    release: ReleaseSettings = ReleaseSettings()
    repair: RepairSettings = RepairSettings()


def read_settings(path: Path) -> Settings:
    """The settings; their defaults without a file. Raises SettingsError."""
    try:
        return Settings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except ValidationError as error:
        parts = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]]
        raise SettingsError(f"{path} cannot be meant", cause="; ".join(parts)) from error
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read", cause=str(error)) from error
