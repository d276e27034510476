"""Where a host has NVIDIA's mathematics libraries, which sessions call for the guest's (docs/libraries.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from vgpumgr.virtio.sandbox import list_library_places

#: directories with ``:`` between them, instead of those below
VARIABLE = "VGPUMGR_MATH"
#: of NVIDIA's packages and installers
_DIRECTORIES = ("/usr/local/cuda/lib64", "/usr/local/cuda-13/lib64", "/usr/local/cuda-12/lib64")
#: with their majors, newest first, as the worker tries them
LIBRARIES = {"libcublas.so": (13, 12), "libcublasLt.so": (13, 12), "libcudnn.so": (9,)}


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
    names = [f"{name}.{major}" for name, majors in LIBRARIES.items() for major in majors]
    found = (os.path.realpath(p) for p in places if any((Path(p) / n).exists() for n in names))
    return tuple(dict.fromkeys(found))


def find_libraries(environ: Mapping[str, str]) -> tuple[MathLibrary, ...]:
    """What a session would load of each library, as the worker does it (native/worker/libraries.c): a newer one before
    an older one, then by directory, the loader's last. Those that the host lacks are not there.
    """
    places = [*find_directories(environ), *list_library_places(environ)]
    found: dict[str, MathLibrary] = {}
    for name, majors in LIBRARIES.items():
        paths = (Path(place) / f"{name}.{major}" for major, place in product(majors, places))
        if path := next(filter(Path.exists, paths), None):
            found[name] = MathLibrary(name, path.resolve())
    return tuple(found[name] for name in LIBRARIES if name in found)


def list_worker_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The worker's option, if a directory was found."""
    found = find_directories(environ)
    return (f"--math={os.pathsep.join(found)}",) if found else ()
