# SPDX-License-Identifier: Apache-2.0
"""A process that holds VFIO devices as a VM's QEMU does, until its standard input ends.

usage: python -m vgpumgr.sim.pretend_vm -name guest=NAME FILE...

Files are those of ``/dev/vfio`` below a simulated machine's root. Prints ``open`` when it has them all, or the error.
"""

from __future__ import annotations

import os
import sys


def main(arguments: list[str]) -> int:
    """Open, say so, wait, close. 2: wrong usage; 1: a file cannot be opened."""
    if len(arguments) < 3 or arguments[0] != "-name" or not arguments[1].startswith("guest="):
        print(__doc__, file=sys.stderr)
        return 2
    descriptors = []
    try:
        for path in arguments[2:]:
            descriptors.append(os.open(path, os.O_RDWR))
    except OSError as error:
        print(error, flush=True)
        return 1
    print("open", flush=True)
    sys.stdin.read()
    for descriptor in descriptors:
        os.close(descriptor)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
