"""``vgpumgr metrics``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Context, Option

from vgpumgr.cli.output import write_file
from vgpumgr.cli.reader import App
from vgpumgr.cli.session import call, get_streams

app = App()
#: longer than NVML may take: without a daemon there is no cache
_WAIT_S = 40.0


@app.command("metrics")
def print_metrics(
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
    """Print the metrics for Prometheus.

    docs/metrics.md lists them.

    \b
    Examples:
      vgpumgr metrics
      vgpumgr metrics --out /var/lib/prometheus/node-exporter/vgpumgr.prom
    """
    document = call(context, "read_metrics", openmetrics=openmetrics, wait_s=_WAIT_S)
    if out is None:
        get_streams(context).out.write(document["text"])
    else:
        write_file(out, document["text"])
