"""A helper that is ended while it is asked for the first time, and answers the second: argv FILE FD."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vgpumgr.host.helper import serve


class Handlers:
    """Counts in a file."""

    def list_gpu_instances(self, gpu: str) -> list[object]:  # noqa: ARG002
        """Nothing, if it comes so far."""
        path = Path(sys.argv[1])
        count = len(path.read_text()) + 1 if path.exists() else 1
        with path.open("a") as file:
            file.write(str(count))
        if count == 1:
            os._exit(0)
        return []


if __name__ == "__main__":
    serve(int(sys.argv[2]), Handlers())
