"""Where a host has NVIDIA's mathematics libraries, which sessions call for the guest's (docs/libraries.md)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path

from vgpumgr.host.process import list_descendants
from vgpumgr.virtio.channel import HostLibrary
from vgpumgr.virtio.sandbox import list_library_places

#: directories with ``:`` between them, instead of those below
VARIABLE = "VGPUMGR_MATH"
#: of NVIDIA's packages and installers
_DIRECTORIES = ("/usr/local/cuda/lib64", "/usr/local/cuda-13/lib64", "/usr/local/cuda-12/lib64")
#: with their majors, newest first, as the worker tries them
LIBRARIES = {
    "libcublas.so": (13, 12),
    "libcublasLt.so": (13, 12),
    "libcudnn.so": (9,),
    "libcufft.so": (12, 11),
    "libcusolver.so": (12, 11),
    "libcusparse.so": (12,),
    "libcurand.so": (10,),
}


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


def find_libraries(environ: Mapping[str, str]) -> tuple[HostLibrary, ...]:
    """What a session would load of each library, as the worker does it (native/worker/libraries.c): a newer one before
    an older one, then by directory, the loader's last. Those that the host lacks are not there.
    """
    places = [*find_directories(environ), *list_library_places(environ)]
    found: dict[str, HostLibrary] = {}
    for name, majors in LIBRARIES.items():
        paths = (Path(place) / f"{name}.{major}" for major, place in product(majors, places))
        if path := next(filter(Path.exists, paths), None):
            found[name] = HostLibrary(name, path.resolve())
    return tuple(found[name] for name in LIBRARIES if name in found)


def find_loaded(pid: int, proc: Path = Path("/proc")) -> frozenset[Path]:
    """Which of them a process has loaded, by the kernel's word."""
    try:
        lines = (proc / str(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:  # it has ended
        return frozenset()
    paths = {Path(words[5]) for line in lines if len(words := line.split(maxsplit=5)) == 6}
    return frozenset(
        path for path in paths if path.name.startswith(tuple(f"{n}." for n in LIBRARIES))
    )


def list_used(environ: Mapping[str, str], worker_pid: int) -> tuple[HostLibrary, ...]:
    """What a worker's sessions have loaded, and what they would load of the rest."""
    sessions = Counter(path for pid in list_descendants(worker_pid) for path in find_loaded(pid))
    would = [one for one in find_libraries(environ) if one.path not in sessions]
    loaded = [
        HostLibrary(name, path, count)
        for path, count in sorted(sessions.items())
        for name in LIBRARIES
        if path.name.startswith(f"{name}.")
    ]
    # one that is loaded stands for its kind: sessions began before another was installed
    names = {one.name for one in loaded}
    return (*loaded, *(one for one in would if one.name not in names))


def list_worker_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The worker's option, if a directory was found."""
    found = find_directories(environ)
    return (f"--math={os.pathsep.join(found)}",) if found else ()
