"""``vgpumgr pool class``: how the GPUs of a pool are provided, and by which policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from typer import Argument, BadParameter, Context, Option

from vgpumgr.cli.backend import open_pool
from vgpumgr.cli.main import App
from vgpumgr.cli.output import Column, or_absent, print_list, print_row, print_single, value_column
from vgpumgr.cli.session import get_session_here

app = App()
_SCHEMA = "vgpumgr/v1"
POLICIES = "fgd, best-fit, dot-product, gpu-packing, spread or random"
_COLUMNS = (
    value_column("name"),
    value_column("policy"),
    Column("whole", lambda row: "yes" if row["whole"] else or_absent(None)),
    Column("preemptible", lambda row: "yes" if row["preemptible"] else or_absent(None)),
    Column("models", lambda row: or_absent(", ".join(row["models"]) or None), wraps=True),
    value_column("gpus", right=True),
    value_column("claims", right=True),
)
ClassName = Annotated[str, Argument(metavar="CLASS", help="Its name.")]


def read_policy(text: str) -> str:
    """The name of a policy. Raises BadParameter with near names."""
    from vgpumgr.model.text import list_near
    from vgpumgr.pool.scheduler.choosing import POLICY_NAMES

    if text in POLICY_NAMES:
        return text
    near = list_near(text, POLICY_NAMES, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    raise BadParameter(f"no policy is called {text!r}; {guess}there are {', '.join(POLICY_NAMES)}")


def format_free(free: Iterable[int]) -> str:
    """``3x1000 190 4x0``: what is free of each GPU, in thousandths, the most first."""
    counts = Counter(sorted(free, reverse=True))
    text = " ".join(f"{n}x{milli}" if n > 1 else f"{milli}" for milli, n in counts.items())
    return or_absent(text or None)


@app.named("create")
def create(
    context: Context,
    name: ClassName,
    policy: Annotated[
        str,
        Option("--policy", metavar="POLICY", parser=read_policy, help=f"{POLICIES}."),
    ] = "fgd",
    models: Annotated[
        list[str] | None,
        Option("--model", metavar="MODEL", help="GPUs of this model only; several."),
    ] = None,
    whole: Annotated[bool, Option("--whole", help="Whole GPUs only, no shares of them.")] = False,
    preemptible: Annotated[
        bool,
        Option("--preemptible", help="Its leases make way for claims of a higher priority."),
    ] = False,
) -> None:
    """Add a class: claims of it get such GPUs, by this policy.

    \b
    Examples:
      vgpumgr pool class create training --whole --model "NVIDIA H100 80GB HBM3"
      vgpumgr pool class create quiet --policy spread
      vgpumgr pool class create batch --preemptible
    """
    with open_pool(get_session_here(context, "pool class create").options) as pool:
        row = pool.classes.create(name, policy, models or (), whole=whole, preemptible=preemptible)
    print_row(context, {"schema": _SCHEMA, "class": row}, f"class {name}", row, _COLUMNS, name)


@app.listing("list")
def list_classes(context: Context) -> None:
    """List the classes of the pool.

    \b
    Examples:
      vgpumgr pool class list
    """
    with open_pool(get_session_here(context, "pool class list").options) as pool:
        rows = pool.classes.list_all()
    print_list(context, {"schema": _SCHEMA, "classes": rows}, rows, _COLUMNS, "name")


@app.single("delete")
def delete(context: Context, name: ClassName) -> None:
    """Remove a class that has no claims.

    \b
    Examples:
      vgpumgr pool class delete quiet
    """
    with open_pool(get_session_here(context, "pool class delete").options) as pool:
        pool.classes.delete(name)
    print_single(
        context,
        {"schema": _SCHEMA, "class": name, "deleted": True},
        [f"class {name} is deleted"],
    )
