"""Installs requirements at the pinned versions: ``install_python.py [-r REQUIREMENTS]... [-c CONSTRAINTS]...``

The constraints pin everything that the requirements bring. A pin may ask for another Python than this one, be gone
from the index, or not build here: it is named on stderr, and the requirements' ranges decide instead. The interpreter
that runs this file is the one that is installed into. Standard library only.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from importlib import invalidate_caches, metadata
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
#: pip's words for a version that cannot be had or built here, with the name of the distribution
UNAVAILABLE = re.compile(
    r"No matching distribution found for ([\w.-]+)|Package '([\w.-]+)' requires a different Python"
    r"|Failed building wheel for ([\w.-]+)"
)


class PipError(Exception):
    """What pip printed."""


def main(arguments: list[str]) -> int:
    """Install; exit status 1, with pip's own words, where the requirements cannot be met at all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-r", action="append", type=Path, default=[], dest="requirements")
    parser.add_argument("-c", action="append", type=Path, default=[], dest="constraints")
    options = parser.parse_args(arguments)
    wanted = [word for path in options.requirements for word in ("-r", str(path))]
    try:
        install(wanted, read_pins(options.constraints))
    except PipError as error:
        sys.stderr.write(str(error))
        return 1
    return 0


def install(wanted: list[str], pins: dict[str, str]) -> None:
    """Install the requirements, at the pins as far as they can be had."""
    available, missing = dict(pins), []
    while available:
        # one by one, without the search for versions that fit together: that one takes minutes where a pin is missing
        try:
            pip("--no-deps", *available.values())
            break
        except PipError as error:
            found = UNAVAILABLE.search(str(error))
            name = normalize(found[found.lastindex or 0]) if found else None
            if name not in available:
                raise
            missing.append(available.pop(name))
    with tempfile.TemporaryDirectory() as directory:
        constraints = Path(directory, "constraints.txt")
        constraints.write_text("".join(f"{pin}\n" for pin in available.values()))
        kept = ["-c", str(constraints)]
        loose = bool(missing) and not fits([*wanted, *kept])
        if loose:
            kept = ["--upgrade", "--upgrade-strategy", "eager"]
        pip(*wanted, *kept)
    for pin in missing:
        name = pin.partition("==")[0]
        say(
            f"{pin} cannot be had here (Python {python_version()}); using {find_version(name) or 'none'}"
        )
    if loose:
        say("the other pins do not fit together then; the requirements' ranges decide for all")


def pip(*words: str) -> None:
    """``pip install``. Raises PipError."""
    done = subprocess.run([*PIP, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PipError(done.stdout + done.stderr)


def fits(words: list[str]) -> bool:
    """Whether versions can be found. What is installed is left out: with it the search may take for ever."""
    try:
        pip("--dry-run", "--ignore-installed", *words)
    except PipError:
        return False
    return True


def read_pins(constraints: list[Path]) -> dict[str, str]:
    """``name==version`` by the name of the distribution."""
    lines = [line for path in constraints for line in path.read_text().splitlines()]
    return {
        normalize(line.partition("==")[0]): line
        for line in lines
        if "==" in line and line[0] != "#"
    }


def find_version(name: str) -> str | None:
    """The installed version of a distribution."""
    invalidate_caches()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def normalize(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def python_version() -> str:
    """Major, minor and micro."""
    return ".".join(map(str, sys.version_info[:3]))


def say(sentence: str) -> None:
    """Set-up's way to speak."""
    print(f"setup: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
