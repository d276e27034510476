"""``vgpumgr metrics``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from vgpumgr.cli.declarations import Context, Option
from vgpumgr.cli.session import Session, get_session
from vgpumgr.errors import FileWriteError

#: longer than NVML may take: who has no daemon has no cache either
_WAIT_S = 40.0


def command(
    context: Context,
    openmetrics: Annotated[
        bool, Option("--openmetrics", help="As OpenMetrics instead of Prometheus' text.")
    ] = False,
    out: Annotated[
        Path | None,
        Option(
            "--out", metavar="FILE", help="Replace this file at once, for the textfile collector."
        ),
    ] = None,
) -> None:
    """Print the metrics for Prometheus; docs/metrics.md lists them.

    \b
    Examples:
      vgpumgr metrics
      vgpumgr metrics --out /var/lib/prometheus/node-exporter/vgpumgr.prom
    """
    run(get_session(context), openmetrics=openmetrics, out=out)


def run(session: Session, *, openmetrics: bool = False, out: Path | None = None) -> None:
    """Asks for the exposition and prints it, or puts it in a file's place."""
    document = session.call("read_metrics", openmetrics=openmetrics, wait_s=_WAIT_S)
    if out is None:
        session.streams.out.write(document["text"])
    else:
        _replace(out, document["text"])


def _replace(path: Path, text: str) -> None:
    """Whoever reads the file sees the old or the new one, never half of it."""
    # the collector takes whatever ends in .prom
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileWriteError(f"cannot write {path}", cause=str(error)) from error
