"""Bad input to the commands of a pool, and users who may not: one clear error, and the pool's store as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.unprivileged import as_nobody
from tests.unit.test_pool_claims import claim, make_pool, ok, refused
from tests.unit.test_pool_claims import cli as cli
from vgpumgr.pool.control.records import ROOT
from vgpumgr.pool.membership import open_pool


@pytest.fixture
def pool(cli: Cli) -> Cli:
    """A host with two GPUs in a pool, with a claim, a claim that binds late and a tenant."""
    make_pool(cli)
    claim(cli, "there", "whole")
    claim(cli, "late", "whole", "--binding", "late", "--where", "b*,a")
    ok(cli.run("tenant", "create", "there", "-o", "json"))
    return cli


def read_store() -> dict[str, str]:
    with open_pool(None) as pool:
        return {key: entry.value for key, entry in pool.store.range(ROOT).entries.items()}


@pytest.mark.parametrize(
    ("words", "number", "code", "says"),
    [
        ("claim create Train --profile whole", "VG100", 2, "no name of a claim"),
        ("claim create t --profile 1g.10gb", "VG100", 2, "not a share"),
        ("claim create t --profile share:80GiB", "VG100", 2, "the percentage of time is missing"),
        ("claim create t --profile whole --class defualt", "VG385", 5, "did you mean default?"),
        ("claim create t --profile share:100GiB,10%", "VG386", 7, "the largest of the pool has 80 GiB"),
        ("claim create t --profile whole --gpus 3", "VG386", 7, "it has 2 GPUs, and the claim needs 3"),
        ("claim create there --profile whole", "VG384", 6, "there is a claim there"),
        ("claim show their", "VG383", 5, "did you mean there?"),
        ("claim delete none", "VG383", 5, "no claim none"),
        ("claim resize none --gpus 2", "VG383", 5, "no claim none"),
        ("claim resize there --gpus 3", "VG386", 7, "the claim needs 3"),
        ("claim resize there", "VG100", 2, "resize to what"),
        ("pool init", "VG379", 6, "in a pool already"),
        ("pool join --name b", "VG377", 6, "is host a of the pool already"),
        ("pool join --name A", "VG100", 2, "no name of a host"),
        ("pool join --name a --etcd http://127.0.0.1:1", "VG379", 6, "in a pool already"),
        ("pool join --name a --etcd-ca x", "VG100", 2, "no etcd"),
        ("tenant create Vision", "VG100", 2, "no name of a tenant"),
        ("tenant create there", "VG394", 6, "there is a tenant there"),
        ("tenant create x --gpus -1", "VG100", 2, "is not from 0"),
        ("tenant create x --gpus nan", "VG100", 2, "is not from 0"),
        ("tenant create x --gpus 0.0001", "VG100", 2, "more than three decimals"),
        ("tenant create x --gpus many", "VG100", 2, "is not a number"),
        ("tenant create x --weight 0", "VG100", 2, "0 is not from 1"),
        ("tenant set there", "VG100", 2, "set what"),
        ("tenant set their --gpus 1", "VG393", 5, "did you mean there?"),
        ("tenant show none", "VG393", 5, "no tenant none"),
        ("tenant delete none", "VG393", 5, "no tenant none"),
        ("tenant split A --profile whole", "VG100", 2, "no name of a tenant"),
        ("tenant split a --profile share:100GiB,5%", "VG100", 2, "cannot be divided"),
        ("claim create x --profile whole --tenant their", "VG393", 5, "did you mean there?"),
        ("pool class create Big", "VG100", 2, "no name of a class"),
        ("pool class create spread", "VG395", 6, "there is a class spread"),
        ("pool class create x --model A1000", "VG100", 2, "no GPU of the pool is a 'A1000'"),
        ("pool class create x --policy fdg", "VG100", 2, "did you mean fgd?"),
        ("pool class delete default", "VG395", 6, "every pool has it"),
        ("pool class delete spraed", "VG385", 5, "did you mean spread?"),
        ("claim create x --profile whole --where gpu-b", "VG386", 7, "there are a"),
        ("claim create x --profile whole --where [a]", "VG100", 2, "no name or pattern of a host"),
        ("claim create x --profile whole --where a,,b", "VG100", 2, "no name or pattern of a host"),
        ("claim create x --profile whole --binding lte", "VG100", 2, "lte"),
        ("claim create x --profile whole --anti-affinity A", "VG100", 2, "no name of a group"),
        ("claim create x --profile whole --binding late --if-lost move", "VG100", 2, "does not move"),
        ("claim bind none", "VG383", 5, "no claim none"),
        ("claim release there", "VG100", 2, "as long as it exists"),
        ("claim wait none", "VG383", 5, "no claim none"),
        ("claim wait there --timeout -1", "VG100", 2, "is less than 0"),
        ("claim wait there --timeout nan", "VG100", 2, "is less than 0"),
        ("claim explain none", "VG383", 5, "no claim none"),
        ("pool remove none --confirm-dead", "VG378", 5, "no host none"),
    ],
)  # fmt: skip
def test_each_bad_input_is_one_clear_error(
    pool: Cli, words: str, number: str, code: int, says: str
) -> None:
    before = read_store()
    error = refused(pool.run(*words.split(), "-o", "json"), number, code)
    assert says in f"{error['error']} {error['why']}"
    assert read_store() == before


@pytest.mark.parametrize(
    "words",
    [
        "pool status",
        "pool upgrade",
        "pool leave",
        "pool remove a --confirm-dead",
        "pool class create x",
        "claim create x --profile whole",
        "claim resize there --gpus 2",
        "claim delete there",
        "claim bind late",
        "claim release late",
        "claim list",
        "pool bindings",
        "pool report",
        "tenant set there --gpus 1",
        "tenant delete there",
    ],
)
def test_another_user_reads_and_changes_nothing(pool: Cli, tmp_path: Path, words: str) -> None:
    (tmp_path / "a/state/pool.json").chmod(0o600)
    before = read_store()
    result = as_nobody(lambda: pool.run(*words.split(), "-o", "json"))
    refused(result, "VG213", 4)
    assert read_store() == before
