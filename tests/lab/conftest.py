"""What the tests in the lab host share: one lab host, booted once for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.host import LabHost, boot, unprivileged_reason


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of it stays in one test process, so that there is one lab host at a time."""
    for item in items:
        if "tests/lab/" in item.nodeid:
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.xdist_group("lab"))


@pytest.fixture(scope="session")
def lab_host() -> Iterator[LabHost]:
    """The lab host. Every test leaves it as it found it."""
    if reason := unprivileged_reason():
        pytest.skip(reason)
    with boot() as host:
        yield host
