"""Shell completion: what is offered where, and that bash hands it on without breaking addresses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.boards import make_gpu
from tests.support.cli import Cli
from tests.support.fake_nvml import FakeNvml
from vgpumgr.cli.commands import NOUNS, VERBS
from vgpumgr.cli.session import Format
from vgpumgr.model.limits import LIMIT_KEYS
from vgpumgr.server.settings import KEYS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(FakeNvml([make_gpu(), make_gpu(index=1)]), tmp_path)


def offered(cli: Cli, line: str) -> list[str]:
    done = cli.run("completion", "--line", line)
    assert done.code == 0
    assert done.err == ""
    return done.out.splitlines()


def test_names_of_commands(cli: Cli) -> None:
    everything = {one.name for one in (*VERBS, *NOUNS)} - {"host", "help"}
    assert set(offered(cli, "vgpumgr ")) == everything
    assert offered(cli, "sudo /usr/bin/vgpumgr gpu ") == [
        "drain",
        "layout",
        "list",
        "resume",
        "show",
    ]
    assert offered(cli, "vgpumgr mig lay") == ["layout"]
    for noun in ("mig", "gpu"):
        assert offered(cli, f"vgpumgr --color never {noun} layout a") == ["apply", "assert"]
    assert offered(cli, "vgpumgr nothing ") == []
    assert offered(cli, "vgpumgr gpu list unfinished 'quote") == []


def test_options_and_their_values(cli: Cli) -> None:
    assert "--no-header" in offered(cli, "vgpumgr gpu list --")
    assert "--machine" in offered(cli, "vgpumgr gpu list --")
    assert set(offered(cli, "vgpumgr gpu list -o ")) == {str(one) for one in Format}
    assert offered(cli, "vgpumgr gpu list -o j") == ["json"]
    assert offered(cli, "vgpumgr --color n") == ["never"]
    assert offered(cli, "vgpumgr attach vm01 --backend v") == ["vf"]
    assert offered(cli, "vgpumgr attach vm01 -o json --numa=strict --display o") == ["off", "on"]
    assert offered(cli, "vgpumgr mdev define --aut") == ["--auto"]
    assert offered(cli, "vgpumgr gpu --host= list --no") == []


def test_keys_are_those_of_the_tables(cli: Cli) -> None:
    for words in ("attach vm01 --limit", "run --limit", "virtio restart vm01 --limit"):
        assert offered(cli, f"vgpumgr {words} ") == sorted(LIMIT_KEYS)
    assert offered(cli, "vgpumgr attach vm01 --limit dev") == ["device-memory"]
    assert offered(cli, "vgpumgr daemon --set ") == sorted(KEYS)
    assert offered(cli, "vgpumgr daemon --set release.s") == ["release.stopped"]


def test_names_of_simulated_machines(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VGPUMGR_SIM_ROOT", str(tmp_path / "sim"))
    assert offered(cli, "vgpumgr sim start dgx") == ["dgx-a100"]
    assert offered(cli, "vgpumgr sim stop ") == []
    assert "serve" not in offered(cli, "vgpumgr sim ")


def test_what_the_machine_has(cli: Cli) -> None:
    shown = offered(cli, "vgpumgr gpu show ")
    assert shown[:2] == ["0", "1"]
    for word in shown:
        assert cli.run("gpu", "show", word).code == 0
    assert "1g.10gb" in offered(cli, "vgpumgr attach vm01 --profile 1g")
    assert "passthrough" in offered(cli, "vgpumgr attach vm01 --profile ")
    # no daemon, no libvirt: nothing is offered, and nothing said
    assert offered(cli, "vgpumgr op show ") == []
    assert offered(cli, "vgpumgr vm show ") == []


def test_a_script_for_each_shell(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "vgpumgr completion --line" in cli.run("completion", shell).out
    assert cli.run("completion").code == 2
    assert cli.run("completion", "tcsh").code == 2


def test_bash_gets_addresses_whole(cli: Cli) -> None:
    """Bash breaks words at colons, and puts what it is given behind the last of them."""
    bash = shutil.which("bash")
    assert bash is not None
    script = (
        cli.run("completion", "bash").out
        + r"""
vgpumgr() { printf '0000:47:00.0\n0000:4e:00.0\n'; }
COMP_LINE='vgpumgr gpu show 0000:4' COMP_POINT=${#COMP_LINE}
COMP_WORDBREAKS=$' \t\n:'
_vgpumgr
printf '%s\n' "${COMPREPLY[@]}"
"""
    )
    done = subprocess.run([bash], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["47:00.0", "4e:00.0"]


#: a terminal with a zsh in it that finds the script in its fpath, as after the line of the help
_ZSH_TAB = r"""
zmodload zsh/zpty
zpty inner zsh -f -i
zpty -w inner 'PS1= fpath=($PWD $fpath); autoload -Uz compinit; compinit -D -u
compadd() { local -a got; builtin compadd -O got "$@"; print -r -- ">>$got<""<"; }
print RE""ADY'
zpty -r inner seen '*READY*'
zpty -w -n inner "$1"$'\t'
zpty -r inner seen '*>>*<<*'
print -r -- ${${seen##*>>}%%<<*}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's directory with a file in it, and the genuine program on his path."""
    program = tmp_path / "bin/vgpumgr"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m vgpumgr "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.yaml").write_text("")
    monkeypatch.setenv("HOME", str(home))
    return home


def run_shell(home: Path, *words: str) -> list[str]:
    done = subprocess.run(
        words, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [("vgpumgr at", ["attach"]), ("vgpumgr mig layout apply mi", ["mine.yaml"])],
)
def test_fish_completes(cli: Cli, home: Path, line: str, expected: list[str]) -> None:
    (home / "vgpumgr.fish").write_text(cli.run("completion", "fish").out)
    script = f"source vgpumgr.fish; complete -C '{line}'"
    assert run_shell(home, "fish", "--no-config", "-c", script) == expected


def test_zsh_completes_at_the_first_tab(cli: Cli, home: Path) -> None:
    (home / "_vgpumgr").write_text(cli.run("completion", "zsh").out)
    (home / "tab.zsh").write_text(_ZSH_TAB)
    assert run_shell(home, "zsh", "-f", "tab.zsh", "vgpumgr at") == ["attach"]


def test_names_of_mig_instances_and_profiles(tmp_path: Path) -> None:
    gpus = [make_gpu(index=0, layout=[("3g.40gb", 4), ("1g.10gb", 0)]), make_gpu(index=1)]
    cli = Cli(FakeNvml(gpus), tmp_path)
    for verb in ("show", "destroy", "destroy 0/1"):
        assert offered(cli, f"vgpumgr mig {verb} 0/") == sorted(
            f"0/{i.id}" for i in gpus[0].instances
        )
    assert set(offered(cli, "vgpumgr mig create 0 ")) == {str(p.name) for p in gpus[0].profiles}
    assert offered(cli, "vgpumgr mig destroy --all ")[:2] == ["0", "1"]
    assert {"--sort", "--filter", "--watch"} <= set(offered(cli, "vgpumgr mig list --"))
