"""The role: what it says of itself, and that its units start the program where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "ansible/roles/vgpumgr"
UNITS = ROOT / "templates/systemd"


def read(name: str) -> Any:
    return yaml.safe_load((ROLE / name).read_text())


def list_tasks() -> list[dict[str, Any]]:
    return [
        task for path in sorted(ROLE.glob("tasks/*.yml")) for task in read(f"tasks/{path.name}")
    ]


def test_defaults_are_those_of_the_declaration() -> None:
    declared = read("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    defaults = read("defaults/main.yml")
    assert set(declared) == {"vgpumgr_wheel", *defaults}
    for name, option in declared.items():
        if "default" in option:
            assert option["default"] == defaults[name], name


def test_every_unit_is_installed_and_started_from_the_prefix() -> None:
    (units,) = [task for task in list_tasks() if task["name"] == "Units"]
    there = {path.name for path in UNITS.glob("*.service")} | {"vgpumgr.socket"}
    assert set(units["loop"]) == there
    assert (
        "replace('/usr/bin/vgpumgr', vgpumgr_prefix ~ '/bin/vgpumgr')"
        in (units["ansible.builtin.copy"]["content"])
    )
    for name in there:
        for line in (UNITS / name).read_text().splitlines():
            if line.startswith("ExecStart="):
                assert line.startswith("ExecStart=/usr/bin/vgpumgr "), name


def test_the_state_directory_has_the_mode_that_the_units_give_it() -> None:
    (made,) = [task for task in list_tasks() if task["name"] == "State directory"]
    mode = made["ansible.builtin.file"]["mode"]
    assert f"StateDirectoryMode={mode}" in (UNITS / "vgpumgr.service").read_text()
    assert f"d /var/lib/vgpumgr {mode} " in (UNITS / "vgpumgr.tmpfiles.conf").read_text()


def test_the_daemon_and_metrics_are_among_the_extras() -> None:
    assert "daemon" in read("defaults/main.yml")["vgpumgr_extras"]
