"""``vgpumgr top --once`` on a simulated machine with attachments."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.attached_machine import Attached, attached_machine
from vgpumgr.cli.backend import LocalBackend
from vgpumgr.cli.main import main
from vgpumgr.cli.session import Backend, GlobalOptions, Session, Streams
from vgpumgr.errors import LibvirtError

pytestmark = [pytest.mark.native, pytest.mark.xdist_group("attached-machine")]


@pytest.fixture(scope="module")
def attached() -> Iterator[Attached]:
    with attached_machine() as scene:
        yield scene


def run_once(attached: Attached, *words: str) -> tuple[int, str]:
    @contextmanager
    def open_backend(_options: GlobalOptions) -> Iterator[Backend]:
        yield LocalBackend(attached.application)

    out, options = io.StringIO(), GlobalOptions()
    session = Session(options, Streams(options, out, io.StringIO()), open_backend)
    return main(["top", "--once", *words], session), out.getvalue()


def test_once_is_the_machine_as_it_is(
    attached: Attached, golden: Callable[[str, str], None]
) -> None:
    code, text = run_once(attached, "--ascii")
    assert code == 0
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    # what the simulated driver reserves for a slice is its own affair
    golden("top-once-dgx.txt", re.sub(r"\d\.\d/", "N.N/", text))


def test_once_tells_by_its_code_that_something_is_missing(attached: Attached) -> None:
    attached.hypervisor.fail["list_vms"] = LibvirtError("libvirt does not answer")
    code, text = run_once(attached)
    assert code == 1
    assert text.splitlines()[-1] == "! libvirt does not answer"
    assert "3g.40gb" in text
