"""What each view shows of the host, and what its buttons do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.web.conftest import Session
from tests.web.scene import Scene
from tests.web.test_page import show, show_as
from tests.web.test_stories import agree, card, edit, list_places, read_command, read_plan

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route


def find_gpu(scene: Scene, index: int) -> dict[str, Any]:
    gpu: dict[str, Any] = scene.get("/1.0/gpus")["gpus"][index]
    return gpu


def find_channel(scene: Scene, vm: str = "vm02") -> dict[str, Any]:
    return next(row for row in scene.get("/1.0/channels")["channels"] if row["vm"] == vm)


def locate(scene: Scene, view: str) -> str:
    """A view's address: GPUs are named by their index, and VMs by their name."""
    kind, _, name = view.partition("/")
    if kind == "gpu":
        return f"gpu/{find_gpu(scene, int(name))['uuid']}"
    if kind == "vm":
        uuids = {vm["name"]: vm["uuid"] for vm in scene.get("/1.0/vms")["vms"]}
        return f"vm/{uuids[name]}"
    return view


def has_mode(scene: Scene, _given: object) -> bool:
    return bool(find_gpu(scene, 4)["mig"]["current"])


def is_drained(scene: Scene, _given: object) -> bool:
    return find_gpu(scene, 3)["drained"] is not None


def negate(is_so: Callable[[Scene, object], bool]) -> Callable[[Scene, object], bool]:
    return lambda scene, given: not is_so(scene, given)


def make_instance(scene: Scene) -> int:
    scene.post("/1.0/mig/create", {"gpu": "0", "profile": "1g.10gb", "start": 3})
    rows = scene.get("/1.0/mig/instances?selector=0")["instances"]
    return int(next(row["id"] for row in rows if not row["vm"]))


def kill_keeper(scene: Scene) -> int:
    """As a boot leaves a channel."""
    pid = int(find_channel(scene)["keeper_pid"])
    os.kill(pid, signal.SIGKILL)
    return pid


def has_another_keeper(scene: Scene, given: object) -> bool:
    return find_channel(scene)["keeper_pid"] not in (None, given)


@dataclass(frozen=True)
class Act:
    """A button of a view, the command that it shows, and what the host has afterwards."""

    view: str
    button: str
    command: str
    #: how the plan begins
    plan: str
    is_done: Callable[[Scene, Any], bool]
    before: Callable[[Scene], object] = lambda _scene: None


#: what belongs together begins and ends with the same host
ACTS = [
    [
        Act("gpu/3", "Drain", "gpu drain 3", "~ drain 0000:4e:00.0: no new slice", is_drained),
        Act("gpu/3", "Resume", "gpu resume 3", "~ resume 0000:4e:00.0", negate(is_drained)),
    ],
    [
        Act("gpu/4", "Turn MIG mode on", "mig enable 4", "~ GPU 4: MIG mode on", has_mode),
        Act("gpu/4", "Turn MIG mode off", "mig disable 4", "~ GPU 4: MIG mode off", negate(has_mode)),
    ],
    [
        Act("gpu/0", "Destroy 1g.10gb at 3:1", "mig destroy 0/{}", "- GPU 0: 1g.10gb at 0:1 in 1g.10gb at 3:1",
            lambda scene, _: "3:1" not in list_places(scene), before=make_instance),
    ],
    [
        Act("vm/vm02", "Restart channel", "virtio restart vm02", "- stop the worker", has_another_keeper,
            before=lambda scene: find_channel(scene)["keeper_pid"]),
        Act("drift", "Restore after a boot", "restore", "~ slice and channel of vm02", has_another_keeper,
            before=kill_keeper),
    ],
]  # fmt: skip


@pytest.mark.parametrize("acts", ACTS, ids=[acts[0].button for acts in ACTS])
def test_buttons_do_what_their_commands_do(scene: Scene, page: Page, acts: list[Act]) -> None:
    for act in acts:
        given = act.before(scene)
        show(page, locate(scene, act.view))
        page.get_by_role("button", name=act.button, exact=True).click()
        assert read_plan(page)[0].startswith(act.plan)
        assert read_command(page) == act.command.format(given).split()
        ends_mode = page.get_by_text("The plan turns MIG mode off.").count() == 1
        assert ends_mode == (act.button == "Turn MIG mode off")
        assert not act.is_done(scene, given), "nothing is done before consent"
        agree(page)
        assert act.is_done(scene, given)


def answer_history(route: Route) -> None:
    """Three points of each figure, of what was asked for."""
    subject, _, name = route.request.url.partition("?")[2].partition("=")
    figures = {
        "gpu": {"memory_used_bytes": 3 << 30, "utilisation_ratio": 0.25, "power_watts": 70, "temperature_celsius": 41},
        "vm": {"calls_per_second": 1234, "bytes_per_second": 2048, "throttled_ratio": 0.5},
    }[subject]  # fmt: skip
    who = {"gpu": None, "vm": None, "attachment": 0 if subject == "vm" else None, subject: name}
    series = [
        {**who, "figure": figure, "values": [None, 0, last]} for figure, last in figures.items()
    ]
    times = [1.7e9, 1.7e9 + 10, 1.7e9 + 20]
    route.fulfill(json={"schema": "vgpumgr/v1", "step_s": 10, "times_s": times, "series": series})


#: pixels in the colour of lines, by the figure; axes have another one
COUNT_LINES = """() => Object.fromEntries([...document.querySelectorAll('.plot')].map((plot) => {
  const canvas = plot.querySelector('canvas');
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) {
    const far = [0x3f, 0x7f, 0xc0].reduce((sum, part, index) => sum + Math.abs(data[at + index] - part), 0);
    if (data[at + 3] > 200 && far < 24) count += 1;
  }
  return [plot.dataset.figure, count]; }))"""

PLOTS = {
    "gpu/1": {
        "memory_used_bytes": "Memory used in the last hour; the latest value is 3 GiB.",
        "utilisation_ratio": "Load in the last hour; the latest value is 25 %.",
        "power_watts": "Power in the last hour; the latest value is 70 W.",
        "temperature_celsius": "Temperature in the last hour; the latest value is 41 °C.",
    },
    "vm/vm02": {
        "calls_per_second": "Calls per second in the last hour; the latest value is 1,234.",
        "bytes_per_second": "Bytes per second in the last hour; the latest value is 2 KiB.",
        "throttled_ratio": "Throttled share of the time in the last hour; the latest value is 50 %.",
    },
}


def test_the_last_hour_is_drawn_and_said(scene: Scene, page: Page) -> None:
    page.route("**/1.0/history?*", answer_history)
    for view, expected in PLOTS.items():
        with page.expect_request("**/1.0/history?*") as asked:
            show(page, locate(scene, view))
        kind, _, name = view.partition("/")
        subject = name if kind == "vm" else locate(scene, view).partition("/")[2]
        assert asked.value.url.endswith(f"?{kind}={subject}")
        page.locator(f'.plot[data-figure="{next(iter(expected))}"]').wait_for()
        said = {
            str(plot.get_attribute("data-figure")): plot.get_by_role("img").get_attribute(
                "aria-label"
            )
            for plot in page.locator(".plot").all()
        }
        assert said == expected
        page.wait_for_function(f"Object.values(({COUNT_LINES})()).every((count) => count > 20)")


def read_facts(page: Page, region: str) -> dict[str, str]:
    """Names with their values."""
    facts = page.get_by_role("region", name=region).locator("dl.facts")
    names, values = (facts.locator(tag).all_inner_texts() for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def test_a_vm_shows_its_channel_quota_and_share(scene: Scene, session: Session) -> None:
    channels = scene.get("/1.0/channels")
    channel = next(row for row in channels["channels"] if row["vm"] == "vm02")
    channel |= {
        "calls": 1234567,
        "bytes_in": 3 << 20,
        "bytes_out": 5 << 30,
        "memory_bytes": 1 << 30,
        "hello": True,
    }
    channel["share"] |= {"used_s": 75.0, "throttled_s": 12.0, "priority": "high", "policy": "fixed"}
    channel["sessions"]["lost"] = 2
    limits = {row["key"]: row for row in channel["limits"]}
    limits["device-memory"] |= {"used": 2 << 30, "refused": 7, "waited_s": 0.0}
    limits["calls"] |= {"refused": 3, "waited_s": 240.0}
    page = session.open(locate(scene, "vm/vm02"), {"channels": channels})
    page.get_by_text("1,234,567").wait_for()
    facts = read_facts(page, "Channel of share:8GiB,30%")
    assert facts == {
        "worker": "ready", "transport": "-", "calls": "1,234,567", "from the guest": "3 MiB", "to the guest": "5 GiB",
        "memory": "1 GiB", "Sessions that were lost": "2", "Share": "8 GiB and 30 % of the time", "policy": "fixed",
        "priority": "high", "time used": "1 min", "throttled": "12 s",
    }  # fmt: skip
    quota = page.get_by_role("region", name="Quota")
    rows = {
        row.split("\t")[0]: row.split("\t")[1:]
        for row in quota.locator("tbody tr").all_inner_texts()
    }
    assert rows["device-memory"] == ["2 GiB", "8 GiB", "7", "0 s"]
    assert rows["calls"] == ["-", "none", "3", "4 min"]
    assert "bytes" not in rows, "neither a limit nor a refusal"
    meter = quota.get_by_label("device-memory")
    assert meter.get_attribute("value") == str(2 << 30)
    attachment = page.get_by_role("region", name="Attachments").first.locator("tbody tr")
    shown = attachment.inner_text().split("\t")[:6]
    assert shown == ["share:8GiB,30%", "GPU 1", "8 GiB", "auto", "at the next start", "attached"]
    page.close()


def test_a_finding_says_what_repairs_it(scene: Scene, session: Session) -> None:
    answer = scene.get("/1.0/checks")
    good = {"result": "ok", "fixable": False, "hint": None}
    first = {
        **answer["checks"][0],
        **good,
        "result": "problem",
        "fixable": True,
        "hint": "vgpumgr doctor cpu",
    }
    answer["checks"] = [*({**check, **good} for check in answer["checks"][1:]), first]
    page = session.open("checks", {"checks": answer})
    finding = page.locator(".finding")
    finding.get_by_text("vgpumgr doctor --fix repairs this.").wait_for()
    assert finding.count() == 1
    assert finding.locator("code").inner_text() == "vgpumgr doctor cpu"
    assert page.get_by_text(f"1 of {len(answer['checks'])}", exact=True).is_visible()
    page.get_by_label("Only findings").uncheck()
    assert finding.count() == len(answer["checks"])
    assert "problem" in finding.first.inner_text()
    first["result"] = "ok"
    page.get_by_label("Only findings").check()
    page.get_by_role("button", name="Check again").click()
    finding.wait_for(state="detached")
    page.close()


def answer_as_begun(route: Route) -> None:
    """The list from before the first step of what runs."""
    document = route.fetch().json()
    for operation in document["operations"]:
        if operation["status"] == "running":
            operation |= {"progress": [], "updated_s": operation["created_s"]}
    route.fulfill(json=document)


def connect_again(page: Page) -> None:
    """As a tab does that was not seen for a while."""
    show_as(page, "hidden")
    page.locator(".connection.connecting").wait_for()
    show_as(page, "visible")
    page.locator(".connection.live").wait_for()


def test_an_operation_is_cancelled_in_the_list(scene: Scene, page: Page, vm03: str) -> None:
    """Also one that another began: its event does not say that it can be."""
    with scene.file("hold"):
        begun = scene.client.request(
            "POST", "/1.0/attachments", b'{"vm": "vm03", "profile": "1g.10gb"}'
        )
        name = begun.document()["operation"]["id"]
        show(page, "operations")
        button = page.get_by_role("button", name=f"Cancel operation {name}")
        row = page.get_by_role("row").filter(has=button)
        row.get_by_text("running").wait_for()
        step = row.get_by_text("give vm03 a shmem device and a channel device")
        step.wait_for()
        # what is older than the events takes nothing back
        page.route("**/1.0/operations", answer_as_begun)
        connect_again(page)
        step.wait_for()
        page.unroute("**/1.0/operations")
        with page.expect_response(lambda answer: answer.request.method == "DELETE") as asked:
            button.click()
        assert asked.value.url.endswith(f"/1.0/operations/{name}")
    page.locator("tbody tr").first.get_by_text("cancelled", exact=True).wait_for()
    assert button.count() == 0
    assert not scene.list_vms()[vm03]


def test_a_plan_says_its_reasons_and_whom_it_disrupts(scene: Scene, page: Page) -> None:
    def answer(route: Route) -> None:
        document = route.fetch().json()
        document["steps"][0] |= {
            "kind": "mig.gi.destroy",
            "profile": "3g.40gb",
            "disrupts": ["vm01", "vm02"],
        }
        explanation = {**document["explanations"][0], "text": "GPU 4: a reason"}
        said = {"disruptive": True, "destructive": True, "notes": ["and a note"]}
        route.fulfill(json=document | said | {"explanations": [explanation]})

    page.route("**/1.0/mig/mode", answer)
    show(page, locate(scene, "gpu/4"))
    page.get_by_role("button", name="Turn MIG mode on").click()
    assert read_plan(page) == ["- GPU 4: 3g.40gb (used by vm01, vm02)"]
    assert page.locator("dialog .reasons li").all_inner_texts() == ["GPU 4: a reason", "and a note"]
    warnings = page.locator("dialog .note.warn").all_inner_texts()
    assert warnings == [
        "The plan destroys what is listed with a minus sign.",
        "The plan disrupts slices in use.",
    ]
    assert page.locator("dialog .button.danger").inner_text() == "Do it"


def test_a_command_is_copied(session: Session, page: Page) -> None:
    session.context.grant_permissions(["clipboard-read", "clipboard-write"])
    show(page, "checks")
    page.get_by_role("button", name="Copy").first.click()
    page.locator(".said").get_by_text("The command was copied.").wait_for(state="attached")
    assert page.evaluate("navigator.clipboard.readText()") == "vgpumgr doctor"


def test_areas_differ_without_colour(scene: Scene, session: Session) -> None:
    document = scene.get("/1.0/gpus")
    (taken,) = document["gpus"][0]["instances"]
    bare = {
        **taken,
        "vm": None,
        "attachment": None,
        "holder": None,
        "compute_instances": [],
        "profile": "1g.10gb",
    }
    document["gpus"][0]["instances"] += [
        {**bare, "id": 90, "placement": {"start": 0, "size": 1}},
        {
            **bare,
            "id": 91,
            "placement": {"start": 1, "size": 1},
            "holder": {"kind": "run", "name": "train"},
        },
    ]
    page = session.open(answers={"gpus": document})
    board = card(page, 0).locator(".board")
    assert "1g.10gb at 1:1: process train." in str(board.get_attribute("aria-label"))
    drawn = {
        kind: board.locator(f".area.{kind} .texture").get_attribute("fill")
        for kind in ("idle", "run")
    }
    assert drawn == {kind: f"url(#texture-{kind})" for kind in drawn}
    assert board.locator(".area.vm .texture").count() == 0
    edit(page, scene)
    page.get_by_label("Remove 3g.40gb at 4:4").click()
    going = page.locator("dialog .area.going .texture")
    assert going.get_attribute("fill") == "url(#texture-going)"
    assert page.locator("pattern").evaluate_all("rows => rows.map(({id}) => id)") == [
        "texture-idle", "texture-run", "texture-going",
    ]  # fmt: skip
    assert page.locator("pattern:has(*)").count() == 3
    page.close()


def test_what_was_marked_to_go_can_be_kept(scene: Scene, page: Page) -> None:
    edit(page, scene)
    page.get_by_label("Remove 3g.40gb at 4:4").click()
    page.get_by_label("Add 1g.10gb at 4:1").click()
    board = page.locator("dialog .board")
    assert "1g.10gb at 4:1: new." in str(board.get_attribute("aria-label"))
    page.get_by_label("Keep 3g.40gb at 4:4").click()
    label = str(board.get_attribute("aria-label"))
    assert "3g.40gb at 4:4: stays." in label
    assert "1g.10gb" not in label, "its place is taken again"
    page.get_by_role("button", name="Show plan").click()
    page.get_by_text("The plan has no steps: there is nothing to do.").wait_for()


def test_types_of_vgpus_are_offered(scene: Scene, session: Session) -> None:
    gpu = find_gpu(scene, 2)
    name = "NVIDIA A100-20C"
    type_of = {
        "id": "20", "name": name, "free": 3, "gpu": gpu["uuid"], "gpu_index": 2, "framework": "mdev", "reason": None,
        "framebuffer_bytes": 20 << 30, "frame_rate_limit": None, "heads": None, "max_instances": 4, "mig_profile": None,
        "resolution": None,
    }  # fmt: skip
    full = {
        **type_of,
        "id": "40",
        "name": "NVIDIA A100-40C",
        "free": 0,
        "reason": "other vGPUs have its memory",
    }
    types = {"schema": "vgpumgr/v1", "note": None, "types": [full, type_of]}
    page = session.open(answers={"vgpus/types": types})
    chips = card(page, 2).locator(".chip")
    chips.get_by_text("A100-20C: 3 more").wait_for()
    assert chips.all_inner_texts()[-3:-1] == ["A100-20C: 3 more", "A100-40C: 0"]
    assert card(page, 2).get_by_label("A100-40C: 0. Why does it not fit?").count() == 1
    chips.get_by_text("A100-20C: 3 more").click()
    assert page.locator("input[name=profile]").input_value() == name
    page.keyboard.press("Escape")
    show(page, f"gpu/{gpu['uuid']}")
    rows = page.get_by_role("region", name="vGPU types").first.locator("tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [
        ["NVIDIA A100-40C", "20 GiB", "0", "other vGPUs have its memory", ""],
        [name, "20 GiB", "3", "", "Create"],
    ]
    page.close()


def test_a_gpu_that_is_unhealthy_says_so(scene: Scene, session: Session) -> None:
    document = scene.get("/1.0/gpus")
    gpu = document["gpus"][5]
    gpu["health"]["healthy"] = False
    text = "unhealthy: XID 79, it takes no new slice"
    gpu["drained"] = {"by": "driver", "text": text, "since_s": None, "reason": None, "fault": None}
    page = session.open(answers={"gpus": document})
    badges = card(page, 5).locator(".badge")
    badges.get_by_text("unhealthy").wait_for()
    assert badges.all_inner_texts() == ["drained", "unhealthy"]
    assert card(page, 6).locator(".badge").count() == 0
    show(page, f"gpu/{gpu['uuid']}")
    assert page.locator("main > .note.warn").inner_text() == text
    page.close()


def list_streams(page: Page) -> list[str | None]:
    """From now on: of each event stream, from which event on."""
    streams: list[str | None] = []
    page.on(
        "request",
        lambda request: (
            streams.append(request.headers.get("last-event-id"))
            if request.url.endswith("/1.0/events")
            else None
        ),
    )
    return streams


def test_a_stream_that_is_silent_is_opened_anew(scene: Scene, session: Session) -> None:
    page = session.context.new_page()
    page.clock.install()
    streams = list_streams(page)
    page.goto(session.address)
    page.locator(".connection.live").wait_for()
    # the daemon sends something every 15 s
    page.clock.fast_forward(20_000)
    scene.post("/1.0/gpus/4/drain", {})
    card(page, 4).get_by_text("drained").wait_for()
    scene.post("/1.0/gpus/4/resume", {})
    card(page, 4).get_by_text("drained").wait_for(state="detached")
    assert len(streams) == 1
    with page.expect_request("**/1.0/events"):
        page.clock.fast_forward(41_000)
        page.clock.fast_forward(5_000)
    page.locator(".connection.live").wait_for()
    page.close()


def test_another_daemon_counts_its_events_anew(scene: Scene, page: Page) -> None:
    streams = list_streams(page)
    scene.post("/1.0/gpus/6/drain", {})
    card(page, 6).get_by_text("drained").wait_for()
    scene.post("/1.0/gpus/6/resume", {})
    card(page, 6).get_by_text("drained").wait_for(state="detached")
    connect_again(page)
    server = scene.get("/1.0")
    page.route("**/1.0", lambda route: route.fulfill(json={**server, "pid": server["pid"] + 1}))
    connect_again(page)
    same, other = streams
    assert int(str(same)) > 0
    assert other == "0"
