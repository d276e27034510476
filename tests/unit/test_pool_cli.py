"""``vgpumgr pool``: what people and scripts read, and one clear error for each bad file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.boards import make_gpu
from tests.support.cli import Cli, Result
from tests.support.fake_nvml import FakeNvml
from tests.support.unprivileged import as_nobody
from vgpumgr.pool.files import format_hosts, format_tasks, parse_hosts, parse_tasks
from vgpumgr.pool.scheduler.choosing import POLICY_NAMES
from vgpumgr.pool.synthetic import make_hosts, make_tasks

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,100,1,T4\nn2,16000,100,2,G2\n"
HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
TASKS = (
    HEADER + "t1,4000,10,1,500,\nt2,4000,10,1,1000,G2|T4\nt3,1000,10,0,0,\nt4,2000,10,1,500,G2\n"
)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """In an empty directory; every run of a policy takes no time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vgpumgr.host.clock.SystemClock.monotonic_s", lambda _: 0.0)
    return Cli(FakeNvml([make_gpu()]), tmp_path)


@pytest.fixture
def small(cli: Cli) -> Cli:
    """With a trace of a fortieth of the published size."""
    assert cli.run("pool", "generate", "--out", ".", "--scale", "0.025", "--seed", "3").code == 0
    return cli


def run(cli: Cli, verb: str, *words: str, terminal: bool = False) -> Result:
    files = ("--nodes", "nodes.csv", "--tasks", "tasks.csv")
    return cli.run("pool", verb, *files, *words, terminal=terminal)


def test_the_generated_trace_has_the_published_character() -> None:
    hosts, tasks = make_hosts(), make_tasks()
    assert len(hosts) == 1213
    models = Counter[str]()
    for host in hosts:
        models[host.model] += host.gpus
    assert models == {
        "G2": 4392, "T4": 842, "G3": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2
    }  # fmt: skip
    assert sum(models.values()) == 6212
    assert len(tasks) == 8152
    asked = sum(task.demand.total_milli for task in tasks)
    assert round(asked / 1000) == 6087
    share = Counter("part" if task.demand.is_share else str(task.demand.num_gpu) for task in tasks)
    percent = {kind: round(100 * count / len(tasks), 1) for kind, count in share.items()}
    assert percent == {"0": 13.3, "part": 37.8, "1": 48.0, "2": 0.2, "4": 0.2, "8": 0.5}
    parts = sum(task.demand.gpu_milli for task in tasks if task.demand.is_share)
    assert round(100 * parts / asked) == 28
    assert make_tasks(1) != tasks
    assert Counter(t.demand for t in make_tasks(1)) == Counter(t.demand for t in tasks)


def test_files_give_back_what_is_written() -> None:
    hosts, tasks = make_hosts(0.05, 310), make_tasks(5, 0.05, 33)
    assert parse_hosts(format_hosts(hosts), "hosts") == hosts
    assert parse_tasks(format_tasks(tasks), "tasks") == tasks
    constrained = [task for task in tasks if task.demand.models]
    assert 0.2 < len(constrained) / len(tasks) < 0.4
    assert sum(not host.gpus for host in hosts) == 16


def test_empty_cells_of_the_publication_and_columns_in_any_order() -> None:
    text = "model,extra,gpu,memory_mib,cpu_milli,sn\nnan,x,0,5,10,a\n\n"
    (host,) = parse_hosts(text, "nodes")
    assert (host.name, host.cpu_milli, host.memory_mib, host.gpus, host.model) == (
        "a",
        10,
        5,
        0,
        "",
    )
    (task,) = parse_tasks(HEADER + "t,1,2,1,500,nan\n", "tasks")
    assert task.demand == (1, 2, 1, 500, ())


def test_simulate(small: Cli, golden: Callable[[str, str], None]) -> None:
    words = ("--policy", "fgd", "--policy", "random", "--seeds", "2", "--moves", "2")
    golden("pool-simulate.txt", run(small, "simulate", *words, terminal=True).out)
    golden("pool-simulate.json", run(small, "simulate", *words, "-o", "json").out)


def test_explain(small: Cli, golden: Callable[[str, str], None]) -> None:
    golden("pool-explain.txt", run(small, "explain", "task-0150", terminal=True).out)
    rows = json.loads(run(small, "explain", "task-0150", "-o", "json").out)["hosts"]
    assert [row["chosen"] for row in rows] == [True] + [False] * (len(rows) - 1)
    scores = [row["score"] for row in rows if row["score"] is not None]
    assert scores == sorted(scores)
    assert scores[0] == rows[0]["score"]
    last = rows[len(scores) :]
    assert last
    assert all(re.search("needs|no GPU", row["text"]) for row in last)


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy_explains_itself(small: Cli, policy: str) -> None:
    result = run(small, "explain", "task-0100", "--policy", policy, "-o", "json")
    rows = json.loads(result.out)["hosts"]
    assert rows[0]["chosen"]
    assert rows[0]["text"]
    assert (rows[0]["score"] is None) == (policy == "random")


def test_every_policy_allocates_and_moves_add(small: Cli) -> None:
    words = [word for policy in POLICY_NAMES for word in ("--policy", policy)]
    plain, moved = (
        {row["policy"]: row for row in json.loads(result.out)["policies"]}
        for result in (
            run(small, "simulate", *words, "--seeds", "2", "-o", "json", *moves)
            for moves in ((), ("--moves", "100"))
        )
    )
    assert list(plain) == list(POLICY_NAMES)
    for policy, row in plain.items():
        assert 60 < row["gpu_allocated_percent"] <= 100
        assert 0 <= row["unallocated_fragment_percent"] <= 100 - row["gpu_allocated_percent"] + 0.01
        assert row["moves"] == 0
        more = moved[policy]["gpu_allocated_percent"] - row["gpu_allocated_percent"]
        assert (more > 0) == (moved[policy]["moves"] > 0)
    assert moved["random"]["moves"] > 0
    assert plain["fgd"]["gpu_allocated_percent"] > plain["random"]["gpu_allocated_percent"]


def test_a_run_is_the_same_each_time(small: Cli) -> None:
    words = ("--policy", "random", "--policy", "fgd", "--seeds", "2", "--moves", "2", "-o", "json")
    assert run(small, "simulate", *words) == run(small, "simulate", *words)


def test_demand_without_inflation(cli: Cli) -> None:
    Path("nodes.csv").write_text(NODES)
    Path("tasks.csv").write_text(TASKS)
    document = json.loads(run(cli, "simulate", "--inflate", "0", "--seeds", "1", "-o", "json").out)
    (row,) = document["policies"]
    assert (document["gpus"], row["tasks_placed"], row["tasks_waiting"]) == (3, 4, 0)
    assert row["gpu_allocated_percent"] == 66.667


def test_copies_of_tasks_take_no_name_of_the_file(cli: Cli) -> None:
    """Whatever tasks are called, also as a copy of another could be."""
    Path("nodes.csv").write_text(NODES)
    Path("tasks.csv").write_text(f"{HEADER}a,1,1,1,100,\na+3,1,1,1,100,\n 2,1,1,1,100,\n")
    result = run(cli, "simulate", "--inflate", "3", "--seeds", "9", "-o", "json")
    (row,) = json.loads(result.out)["policies"]
    assert (result.code, row["gpu_allocated_percent"]) == (0, 100)


def test_a_demand_of_too_many_copies_is_refused(cli: Cli) -> None:
    Path("nodes.csv").write_text(NODES + "".join(f"big{n},8,100,1024,T4\n" for n in range(9)))
    Path("tasks.csv").write_text(HEADER + "t1,1,1,1,1,\n")
    result = run(cli, "simulate", "--inflate", "10", "--seeds", "1")
    assert "10 times the GPUs takes more than 5000000 copies of tasks" in result.err
    assert "--inflate 0" in result.err
    assert result.code == 2


def test_tasks_that_no_host_can_hold_are_counted_apart(cli: Cli) -> None:
    Path("nodes.csv").write_text(NODES)
    Path("tasks.csv").write_text(TASKS + "".join(f"x{n},1,1,4,1000,\n" for n in range(5)))
    result = run(cli, "simulate", "--seeds", "1", "-o", "json")
    document = json.loads(result.out)
    assert [one["task"] for one in document["impossible"]] == ["x0", "x1", "x2", "x3", "x4"]
    assert (
        document["impossible"][0]["why"] == "on an empty host, it has 2 GPUs, and the task needs 4"
    )
    assert (
        "no host can hold x0: on an empty host, it has 2 GPUs, and the task needs 4" in result.err
    )
    assert "and 2 more that no host can hold" in result.err
    rows = json.loads(run(cli, "explain", "x4", "-o", "json").out)["hosts"]
    assert not any(row["chosen"] for row in rows)


@pytest.mark.parametrize(
    ("nodes", "tasks", "words"),
    [
        ("", TASKS, "nodes.csv: empty"),
        ("\n", TASKS, "nodes.csv: empty"),
        (NODES, "", "tasks.csv: empty"),
        (NODES, HEADER, "tasks.csv: no task"),
        (NODES.partition("\n")[0], TASKS, "nodes.csv: no host"),
        ("sn,cpu_milli,memory_mib,gpus,model\n", TASKS, "line 1: no column gpu\nwhy:     there is 'gpus'"),
        (NODES, "name\nx\n", "tasks.csv, line 1: no column cpu_milli"),
        (NODES.replace("sn,", "sn,sn,"), TASKS, "line 1: two columns 'sn'"),
        (NODES + "n3,8000,1,1\n", TASKS, "nodes.csv, line 4: 4 cells, and the header has 5"),
        (NODES + "n3,8,x,1,T4\n", TASKS, "nodes.csv, line 4: memory_mib is 'x', not a whole number"),
        (NODES + "n3,-8,1,1,T4\n", TASKS, "line 4: cpu_milli is '-8', not a whole number"),
        (NODES + "n3,1.5,1,1,T4\n", TASKS, "line 4: cpu_milli is '1.5', not a whole number"),
        (NODES + "n3,٣,1,1,T4\n", TASKS, "line 4: cpu_milli is '٣', not a whole number"),
        (NODES + f"n3,{'9' * 5000},1,1,T4\n", TASKS, "line 4: cpu_milli is 999"),
        (NODES + "n3,1,1,99999,T4\n", TASKS, "line 4: gpu is 99999, more than 1024"),
        (NODES + "n1,1,1,1,T4\n", TASKS, "line 4: sn is 'n1', as in a line before"),
        (NODES + ",1,1,1,T4\n", TASKS, "line 4: sn is empty"),
        (NODES, TASKS + "t9,1,1,1,1001,\n", "tasks.csv, line 6: gpu_milli is 1001, more than 1000"),
        (NODES, TASKS + "t9,1,1,2,500,\n", "line 6: gpu_milli is 500, and a task with 2 GPUs"),
        (NODES, TASKS + "t9,1,1,0,500,\n", "line 6: gpu_milli is 500, and num_gpu is 0"),
        (NODES, TASKS + "t9,1,1,1,0,\n", "line 6: gpu_milli is 0, and num_gpu is 1"),
        (NODES, TASKS + "t1,1,1,1,1,\n", "line 6: name is 't1', as in a line before"),
        (NODES, TASKS + "t9,\0,1,1,1,\n", "tasks.csv, line 6"),
        (NODES, TASKS + f't9,"{"x" * 140_000}",1,1,1,\n', "tasks.csv, line 6: not CSV"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_error_with_its_line(
    cli: Cli, nodes: str, tasks: str, words: str
) -> None:
    Path("nodes.csv").write_text(nodes)
    Path("tasks.csv").write_text(tasks)
    result = run(cli, "simulate")
    assert words in result.err
    assert result.err.startswith("error:")
    assert "(VG370, exit 2)" in result.err
    assert "Traceback" not in result.err
    assert (result.code, result.out) == (2, "")


def test_files_that_are_not_there_or_no_text(cli: Cli) -> None:
    Path("nodes.csv").write_text(NODES)
    missing = run(cli, "simulate")
    assert "cannot read tasks.csv" in missing.err
    assert missing.code == 5
    Path("tasks.csv").write_bytes(b"name\xff")
    assert "tasks.csv: not UTF-8 text" in run(cli, "simulate").err
    Path("tasks.csv").unlink()
    Path("tasks.csv").mkdir()
    assert run(cli, "simulate").code == 5
    both = cli.run("pool", "simulate", "--nodes", "-", "--tasks", "-")
    assert "are both standard input" in both.err


def test_files_of_another_user(cli: Cli, tmp_path: Path) -> None:
    Path("nodes.csv").write_text(NODES)
    Path("nodes.csv").chmod(0)
    Path("tasks.csv").write_text(TASKS)
    tmp_path.chmod(0o711)
    result = as_nobody(lambda: run(cli, "simulate"))
    assert "cannot read nodes.csv" in result.err
    assert result.code == 4


@pytest.mark.parametrize(
    ("line", "words", "code"),
    [
        ("simulate --policy fdg", "no policy is called 'fdg'; did you mean fgd?", 2),
        ("simulate --policy best", "there are fgd, best-fit, dot-product", 2),
        ("simulate --moves 101", "101 is not from 0 to 100", 2),
        ("simulate --inflate nan", "nan is not from 0 to 10", 2),
        ("simulate --seeds 0", "0 is not from 1 to 1000", 2),
        ("explain t5", 'no task is "t5"', 5),
        ("explain", "missing argument 'TASK'", 2),
        ("simulate --host far", "vgpumgr pool simulate is about this host only", 2),
    ],
)
def test_words_that_cannot_be_meant(cli: Cli, line: str, words: str, code: int) -> None:
    Path("nodes.csv").write_text(NODES)
    Path("tasks.csv").write_text(TASKS)
    result = run(cli, *line.split())
    assert words in result.err
    assert result.code == code


def test_generate(cli: Cli) -> None:
    words = ("--out", "a/b", "--scale", "0.01", "--cpu-hosts", "300", "--constrained", "50")
    result = cli.run("pool", "generate", *words, "-o", "json")
    document = json.loads(result.out)
    assert document["files"] == ["a/b/nodes.csv", "a/b/tasks.csv"]
    hosts = parse_hosts(Path("a/b/nodes.csv").read_text(), "nodes")
    tasks = parse_tasks(Path("a/b/tasks.csv").read_text(), "tasks")
    assert (document["hosts"], document["tasks"]) == (len(hosts), len(tasks))
    assert sum(not host.gpus for host in hosts) == 3
    assert any(task.demand.models for task in tasks)
    Path("file").write_text("")
    refused = cli.run("pool", "generate", "--out", "file/x")
    assert "cannot make the directory file/x" in refused.err
    assert refused.code == 1


def test_equal_split_by_the_command_line(cli: Cli) -> None:
    """16 GPUs of 32 GiB are 128 shares of 4 GiB: all placed, nothing left over."""
    nodes = "".join(f"h{at},64000,262144,4,V100\n" for at in range(4))
    Path("nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\n" + nodes)
    counts = [5] * 16 + [4] * 12
    lines = (f"u{u}-{n},500,2048,1,125,\n" for u, count in enumerate(counts) for n in range(count))
    Path("tasks.csv").write_text(HEADER + "".join(lines))
    words = [word for policy in POLICY_NAMES for word in ("--policy", policy)]
    result = run(cli, "simulate", *words, "--inflate", "1", "--seeds", "2", "-o", "json")
    for row in json.loads(result.out)["policies"]:
        assert row["gpu_allocated_percent"] == 100
        assert (row["tasks_placed"], row["tasks_waiting"]) == (128, 0)
