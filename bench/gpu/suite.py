"""numba-cuda's own tests on the host's GPU, directly and through a channel, several modules at once.

usage: python3 -m bench.gpu.suite [--json FILE] [PART...]   modules whose names contain a part

The package is the one that this Python has; nothing is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.gpu.rig import channel, direct

RUNNER = Path(__file__).parents[1] / "suite_runner.py"
AT_ONCE = 12
LONGEST_S = 60


def list_modules(parts: list[str]) -> list[str]:
    """See bench.suites."""
    spec = importlib.util.find_spec("numba_cuda")
    assert spec is not None
    assert spec.submodule_search_locations
    place = Path(next(iter(spec.submodule_search_locations))) / "numba/cuda/tests"
    found = (
        "numba.cuda.tests." + ".".join(path.relative_to(place).with_suffix("").parts)
        for path in sorted(place.rglob("test_*.py"))
        if path.relative_to(place).parts[0] not in ("benchmarks", "cudasim")
    )
    return [name for name in found if not parts or any(part in name for part in parts)]


def run_module(module: str, env: dict[str, str]) -> list[dict[str, str]]:
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(LONGEST_S), module],
        env=env | {"NUMBA_CACHE_DIR": "/tmp/numba"}, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    modules, found = list_modules(options.parts), dict[str, list[dict[str, str]]]()
    with channel() as rig:
        for way, env in (("direct", direct()), ("ring", rig.guest())):
            start = time.monotonic()
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found[way] = [
                    line
                    for lines in pool.map(lambda m, env=env: run_module(m, env), modules)
                    for line in lines
                ]
            print(
                way,
                dict(Counter(line["outcome"] for line in found[way])),
                f"{time.monotonic() - start:.0f} s",
                flush=True,
            )
            if options.json:
                options.json.write_text(json.dumps(found))
        print("violations", rig.status().violations, "lost", rig.status().sessions.lost)
    fine = {line["id"] for line in found["direct"] if line["outcome"] == "passed"}
    for line in found["ring"]:
        if line["outcome"] != "passed" and line["id"] in fine:
            print(
                "only forwarded:",
                line["id"].removeprefix("numba.cuda.tests."),
                line["outcome"],
                line["why"][-300:],
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
