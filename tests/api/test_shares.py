"""Shares of MIG instances over the API: viewers can read them, and a document's ETag changes with them."""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.api.conftest import Daemon, needs_root
from tests.support.api_daemon import ADMIN_GID, VIEWER_GID
from tests.support.callers import make_request, send_as
from vgpumgr.errors import NoRoomError

ASK = {"profile": "share:4GiB,40%@1g.10gb", "hello_timeout_s": 0}


def attach(daemon: Daemon, vm: str, **more: Any) -> str | None:
    """The error's id, if it is one."""
    started = daemon.post("/1.0/attachments", {**ASK, "vm": vm, **more}).document()
    ended = daemon.client.wait_operation(started["operation"]["id"])
    return str(ended["error"]["id"]) if ended["error"] else None


def detach(daemon: Daemon, vm: str, **more: Any) -> None:
    started = daemon.post(f"/1.0/attachments/{vm}/detach", more).document()
    assert daemon.client.wait_operation(started["operation"]["id"])["error"] is None


def read_etag(daemon: Daemon, path: str) -> str:
    return str(daemon.client.request("GET", path).headers["etag"])


def test_the_etag_of_gpus_changes_with_each_share_of_an_instance(daemon: Daemon) -> None:
    for path in ("/1.0/gpus", "/1.0/gpus/0"):
        assert attach(daemon, "vm01") is None
        one = read_etag(daemon, path)
        assert attach(daemon, "vm02") is None
        two = read_etag(daemon, path)
        assert len(daemon.get("/1.0/mig/instances")["instances"]) == 1
        assert two != one
        assert read_etag(daemon, path) == two
        detach(daemon, "vm02")
        assert read_etag(daemon, path) == one
        detach(daemon, "vm01")


@needs_root
def test_a_viewer_sees_the_holders_of_an_instances_shares(daemon: Daemon) -> None:
    assert attach(daemon, "vm01") is None
    requests = [make_request("GET", "/1.0/mig/instances")]
    replies = [
        send_as(daemon.socket, 65533, [group], requests)[0] for group in (VIEWER_GID, ADMIN_GID)
    ]
    assert [reply.status for reply in replies] == [200, 200]
    read, administrated = (json.loads(reply.body) for reply in replies)
    assert read == administrated
    (instance,) = read["instances"]
    (holder,) = instance["shares"]["holders"]
    assert (holder["name"], holder["compute"]) == ("vm01", 40)
    assert instance["holder"] == {"kind": "vm", "name": "vm01"}
    (refused,) = send_as(
        daemon.socket,
        65533,
        [VIEWER_GID],
        [make_request("POST", "/1.0/attachments", json.dumps({**ASK, "vm": "vm02"}))],
    )
    assert refused.status == 403
    detach(daemon, "vm01")


def test_of_two_at_once_one_gets_the_last_part_of_an_instance(daemon: Daemon) -> None:
    assert attach(daemon, "vm01", profile="share:2GiB,30%@7g.80gb") is None
    outcomes: dict[str, str | None] = {}

    def administrate(vm: str) -> None:
        outcomes[vm] = attach(daemon, vm, profile="share:2GiB,70%@7g.80gb", add=True)

    threads = [threading.Thread(target=administrate, args=(vm,)) for vm in ("vm01", "vm02")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(str, outcomes.values())) == sorted(["None", NoRoomError.id])
    (instance,) = daemon.get("/1.0/mig/instances")["instances"]
    assert instance["shares"]["compute_free"] == 0
    winner = next(vm for vm, error in outcomes.items() if error is None)
    assert sorted(h["name"] for h in instance["shares"]["holders"]) == sorted(["vm01", winner])
    for vm in {"vm01", winner}:
        detach(daemon, vm, every=True)
    assert daemon.get("/1.0/mig/instances")["instances"] == []
