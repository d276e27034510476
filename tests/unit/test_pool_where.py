"""Claims that ask for a host, and commands that wait for a claim."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from tests.support.cli import Cli, Result
from tests.unit.test_pool_claims import await_true, claim, make_pool, ok, refused, serving
from tests.unit.test_pool_claims import cli as cli
from tests.unit.test_pool_explain import explain
from tests.unit.test_pool_tenants import list_granted, make_store, run, share, write
from vgpumgr.pool.control.records import ClaimRecord, GpuRecord, HostRecord, View, alive_key, put
from vgpumgr.pool.membership import open_pool
from vgpumgr.pool.scheduler.choosing import POLICY_NAMES
from vgpumgr.pool.store.interface import Delete

GIB = 1 << 30


@pytest.mark.parametrize("policy", POLICY_NAMES)
@pytest.mark.parametrize(("where", "allowed"), [(("h2",), {"h2"}), (("h0", "h[13]"), {"h0", "h1"})])
def test_a_claim_is_on_a_host_that_it_asks_for(
    policy: str, where: tuple[str, ...], allowed: set[str]
) -> None:
    store = make_store(hosts=3)
    kind = View(store.range("p/")).classes["default"]
    write(store, put(replace(kind, policy=policy)))
    for number in range(5):
        write(store, put(replace(share(f"c{number}", percent=90), where=where)))
    view = run(store)
    assert {lease.host for lease in view.leases.values()} == allowed
    assert len(view.leases) == min(2 * len(allowed), 5)
    for name in {f"c{n}" for n in range(5)} - set(list_granted(view)):
        assert view.claims[name].why.startswith("all are in use: ")
    # one that asks for none has the rest
    write(store, put(share("free", percent=90)))
    assert run(store).claims["free"].host not in allowed


def test_why_it_is_not_elsewhere() -> None:
    store = make_store(hosts=2)
    write(store, put(replace(share("a"), where=("h1", "x*"))))
    found = explain(View(store.range("p/")), "a")
    reasons = {key.split()[0]: (one.chosen, one.why) for key, one in found.items()}
    assert reasons["h0"] == (False, "the claim asks for a host h1 or x*")
    assert reasons["h1"][0] is True
    write(store, Delete(alive_key("h1")))
    assert run(store).claims["a"].why == "it asks for a host h1 or x*, and no such host is ready"


def test_the_limit_is_that_of_the_hosts_that_it_asks_for() -> None:
    """A larger GPU elsewhere does not count, nor do more of them."""
    store = make_store(hosts=1, gpus=1, memory=16 * GIB)
    write(store, put(HostRecord("big", "machine-big")))
    write(store, *(put(GpuRecord("big", n, f"GPU-big-{n}", "V100", 80 * GIB)) for n in range(2)))
    from vgpumgr.pool.control.placing import Placing

    placing = Placing(View(store.range("p/")), everything=True)
    for wanted in (ClaimRecord("x", "default", 1, 40 * GIB), ClaimRecord("x", "default", 2)):
        assert placing.find_limit(wanted) is None
        assert placing.find_limit(replace(wanted, where=("h0",))) is not None
    limit = placing.find_limit(replace(wanted, where=("gone",)))
    assert limit == "it asks for host gone, and there are big, h0"


def test_where_by_command(cli: Cli) -> None:
    make_pool(cli)
    with serving():
        here = claim(cli, "one", "share:4GiB,5%", "--where", "here")
        assert (here["where"], here["lease"]["host"]) == (["a"], "a")
        assert claim(cli, "two", "share:4GiB,5%", "--where", "any")["where"] == []
        found = claim(cli, "three", "share:4GiB,5%", "--where", "b,a*", "--where", "c")
        assert (found["where"], found["lease"]["host"]) == (["b", "a*", "c"], "a")
    error = refused(create(cli, "--where", "gpu-b"), "VG386", 7)
    assert error["why"] == "it asks for host gpu-b, and there are a"
    for wrong in ("", "A", "a/b", "a b", "here,", "[a]"):
        refused(create(cli, "--where", wrong), "VG100", 2)


def create(cli: Cli, *more: str) -> Result:
    return cli.run("claim", "create", "new", "--profile", "share:4GiB,5%", *more, "-o", "json")


def test_a_machine_that_is_no_host_is_not_here(cli: Cli) -> None:
    ok(cli.run("pool", "init", "-o", "json"))
    refused(create(cli, "--where", "here"), "VG377", 6)


def test_a_command_waits_for_its_claim(cli: Cli) -> None:
    make_pool(cli)
    with serving():
        for name in ("one", "two", "late"):
            claim(cli, name, "whole")
        result = cli.run("claim", "wait", "late", "--timeout", "0", "-o", "json")
        assert result.code == 8
        assert '"waiting"' in result.out
        done: list[Result] = []
        waiter = threading.Thread(target=lambda: done.append(wait(cli, "late")))
        waiter.start()
        ok(cli.run("claim", "delete", "one", "-o", "json"))
        waiter.join(60)
        (result,) = done
        assert ok(result)["claim"]["state"] == "granted"
        assert ok(wait(cli, "two"))["claim"]["state"] == "granted"  # at once
    refused(wait(cli, "none"), "VG383", 5)


def wait(cli: Cli, name: str) -> Result:
    return cli.run("claim", "wait", name, "-o", "json")


def test_who_waits_reads_its_place_and_is_not_held_by_a_deletion(cli: Cli) -> None:
    from vgpumgr.errors import ClaimNotFoundError
    from vgpumgr.pool.operations import PoolOperations

    make_pool(cli)
    said: list[str] = []
    failed: list[BaseException] = []
    for name in ("one", "two", "late"):
        claim(cli, name, "whole")

    def follow() -> None:
        with open_pool(None) as pool:
            try:
                PoolOperations(pool).wait("late", 60, said.append)
            except ClaimNotFoundError as error:
                failed.append(error)

    waiter = threading.Thread(target=follow)
    waiter.start()
    await_true(lambda: bool(said))
    with serving():
        await_true(lambda: "place 1: all are in use" in said[-1])
        cli.run("claim", "delete", "late")
        waiter.join(60)
    assert failed
    assert len(said) == len(set(said))
