"""The daemon's settings: a TOML file that need not be there. What a key means: docs/daemon.md."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

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


class LimitSettings(_Table):
    """``[limits]``: limits and timeouts of callers. Root, and the user of the daemon, have no limit per user."""

    #: in total, and those kept for a group of callers
    connections: int = Field(default=512, ge=16, le=65536)
    kept_for_root: int = Field(default=32, ge=1)
    kept_for_admins: int = Field(default=64, ge=0)
    kept_for_viewers: int = Field(default=64, ge=0)
    connections_per_user: int = Field(default=128, ge=1)
    requests_per_user: int = Field(default=32, ge=1)
    listeners_per_user: int = Field(default=16, ge=1)
    #: seconds for the head of a request, then for its body
    head_s: float = Field(default=20, gt=0)
    body_s: float = Field(default=30, gt=0)
    #: seconds in which the caller reads an answer or an event
    answer_s: float = Field(default=30, gt=0)

    @model_validator(mode="after")
    def _check_kept(self) -> Self:
        kept = self.kept_for_root + self.kept_for_admins + self.kept_for_viewers
        if kept >= self.connections:
            raise ValueError(
                f"of {self.connections} connections {kept} are kept: none is left for others"
            )
        return self


class Settings(_Table):
    """All of the file."""

    reconcile: ReconcileSettings = ReconcileSettings()
    release: ReleaseSettings = ReleaseSettings()
    repair: RepairSettings = RepairSettings()
    limits: LimitSettings = LimitSettings()


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
