"""Where a host has NVIDIA's mathematics libraries, which sessions call for the guest's (docs/libraries.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: directories with ``:`` between them, instead of those below
VARIABLE = "VGPUMGR_MATH"
#: of NVIDIA's packages and installers
_DIRECTORIES = ("/usr/local/cuda/lib64", "/usr/local/cuda-13/lib64", "/usr/local/cuda-12/lib64")
LIBRARIES = ("libcublas.so", "libcublasLt.so")
#: newest first, as the worker tries them
_MAJORS = (13, 12)


@dataclass(frozen=True, slots=True)
class MathLibrary:
    """A library that sessions will load; ``path`` is the file behind the links, whose name has the version."""

    name: str
    path: Path


def find_directories(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Those in which there is one, links resolved: as ``VGPUMGR_MATH`` says, else the driver's and NVIDIA's own."""
    chosen = environ.get(VARIABLE, "")
    if chosen:
        places = [place for place in chosen.split(os.pathsep) if Path(place).is_absolute()]
    else:
        driver = Path(environ.get("VGPUMGR_CUDA", ""))
        places = [str(driver.parent)] if driver.is_absolute() else []
        places += _DIRECTORIES
    found = [os.path.realpath(place) for place in places if any(_list_files(Path(place)))]
    return tuple(dict.fromkeys(found))


def find_libraries(environ: Mapping[str, str]) -> tuple[MathLibrary, ...]:
    """What a session would load of each library; those that the host lacks are not there."""
    found: dict[str, MathLibrary] = {}
    for place in find_directories(environ):
        for name, path in _list_files(Path(place)):
            found.setdefault(name, MathLibrary(name, path.resolve()))
    return tuple(found.values())


def _list_files(place: Path) -> Iterator[tuple[str, Path]]:
    for major in _MAJORS:
        for name in LIBRARIES:
            path = place / f"{name}.{major}"
            if path.exists():
                yield name, path


def list_worker_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The worker's option, if a directory was found."""
    found = find_directories(environ)
    return (f"--math={os.pathsep.join(found)}",) if found else ()
