"""Runs in the lab host: a vgpumgr command that must succeed, and how long it took, as JSON; see ``bench/lab.py``."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time

from vgpumgr.cli.main import main

if __name__ == "__main__":
    said = io.StringIO()
    sys.argv[0] = "vgpumgr"
    start_s = time.perf_counter()
    status: object = 0
    with contextlib.redirect_stdout(said):
        try:
            status = main()
        except SystemExit as end:
            status = end.code
    took_s = time.perf_counter() - start_s
    print(json.dumps({"took_s": took_s}))
    sys.exit(int(bool(status)))
