"""Finds circles between the parts of each room of the C tree: `./run python -m tools.native_circles`.

A room is a folder of C files that become one program or library. A part is `foo.c` with `foo.h`. A part needs another
if it includes that part's header, or if its object file names a function or variable that the other part defines. The
headers that a whole room shares declare much and need nothing, so the object files of the build are read.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
DEFINED = frozenset("TDBRCVWG")

# For each part of a room: the parts it needs, each with the names (or the header) by which it does.
Needs = dict[str, dict[str, set[str]]]


def list_rooms(root: Path = ROOT) -> list[Path]:
    """The folders of C code that is written by hand."""
    folders = {path.parent for path in (root / "vgpumgr").glob("**/native/**/*.c")}
    return sorted(folder for folder in folders if folder.name != "generated")


def list_objects(room: Path, build: Path = BUILD) -> list[Path]:
    """The object files of a room's own sources; a source that several targets share has several."""
    targets = build / room.relative_to(ROOT) / "CMakeFiles"
    found = targets.glob("*.dir/*.c.o")
    return sorted(path for path in found if (room / path.name.removesuffix(".o")).exists())


def read_symbols(objects: list[Path]) -> dict[str, tuple[set[str], set[str]]]:
    """For each part: the global names that it defines, and those that it needs from elsewhere."""
    if not objects:
        return {}
    # gcc-nm also reads the objects that are only optimised when they are linked
    listed = subprocess.run(
        ["gcc-nm", "--print-file-name", "--extern-only", *objects],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    parts: dict[str, tuple[set[str], set[str]]] = {}
    for line in listed.splitlines():
        path, _, rest = line.rpartition(":")
        kind, name = rest.split()[-2:]
        defined, needed = parts.setdefault(Path(path).name.removesuffix(".c.o"), (set(), set()))
        if kind in DEFINED:
            defined.add(name)
        elif kind == "U":
            needed.add(name)
    return parts


def find_needs(room: Path, build: Path = BUILD) -> Needs:
    """Which parts of a room need which, by their headers and by their object files."""
    needs: Needs = {}
    for path in sorted(room.glob("*.[ch]")):
        found = needs.setdefault(path.stem, {})
        for include in INCLUDE.findall(path.read_text(encoding="utf-8")):
            target = (room / include).resolve()
            if target.parent == room.resolve() and target.stem != path.stem and target.exists():
                found.setdefault(target.stem, set()).add(target.name)
    symbols = read_symbols(list_objects(room, build))
    owners = {name: part for part, (defined, _) in symbols.items() for name in defined}
    for part, (defined, needed) in symbols.items():
        for name in needed - defined:
            if owners.get(name, part) != part:
                needs[part].setdefault(owners[name], set()).add(name)
    return needs


def find_circles(needs: Needs) -> list[tuple[str, ...]]:
    """The groups of parts that need each other, directly or through others of the group."""
    reach = {part: _reach(needs, part) for part in needs}
    circles = {
        tuple(sorted(other for other in reach[part] if part in reach[other])) for part in needs
    }
    return sorted(circle for circle in circles if len(circle) > 1)


def _reach(needs: Needs, part: str) -> set[str]:
    found: set[str] = set()
    new = set(needs[part])
    while new:
        found |= new
        new = {other for known in new for other in needs[known]} - found
    return found


def main() -> None:
    """Prints each circle, and the names that hold it together."""
    for room in list_rooms():
        needs = find_needs(room)
        for circle in find_circles(needs):
            print(f"{room.relative_to(ROOT)}: {', '.join(circle)}")
            for part in circle:
                for other in sorted(set(needs[part]) & set(circle)):
                    print(f"    {part} -> {other}: {', '.join(sorted(needs[part][other]))}")


if __name__ == "__main__":
    main()
