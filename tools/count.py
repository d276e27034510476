"""Counts a package's Python, and says of each module with a single importer why it is a file of its own.

``python -m tools.count [--check] [FOLDER]``: the folder is ``vgpumgr`` unless another is named. With ``--check`` the
exit status is 1 where a bound is exceeded. Importers are counted from the source, lazy ones and those for types too.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.modules import Class, Module, read_package

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 45_000
MAX_FILES = 260
MAX_FILES_IN_FOLDER = 25
#: a simulator is as wide as what it simulates
WIDE_FOLDERS = ("sim",)
#: above this, a module is a file of its own for its size alone
LARGE_LINES = 150
LARGE, NO_REASON = "large", "no reason"


def main(arguments: list[str] | None = None) -> int:
    """Print the counts."""
    parser = argparse.ArgumentParser(prog="tools.count", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "vgpumgr")
    parser.add_argument("--check", action="store_true", help="exit 1 where a bound is exceeded")
    options = parser.parse_args(arguments)
    modules = read_package(options.folder)
    exceeded = list_exceeded(modules)
    lines = [
        *describe_size(modules),
        *describe_single_importers(modules, entry_points(options.folder)),
    ]
    for line in [*lines, *(f"exceeded: {bound}" for bound in exceeded)]:
        print(line)
    return int(options.check and bool(exceeded))


def describe_size(modules: dict[str, Module]) -> Iterator[str]:
    """Lines and files, in all and for each package."""
    files, lines = Counter[str](), Counter[str]()
    for module in modules.values():
        package = module.path[0] if len(module.path) > 1 else "(top)"
        files[package] += 1
        lines[package] += module.lines
    yield f"{'package':14} {'files':>6} {'lines':>7}"
    for package in sorted(files):
        yield f"{package:14} {files[package]:6} {lines[package]:7}"
    yield f"{'all':14} {files.total():6} {lines.total():7}  (at most {MAX_FILES} and {MAX_LINES})"


def list_exceeded(modules: dict[str, Module]) -> list[str]:
    """Each bound that is exceeded, as text."""
    lines, files = sum(module.lines for module in modules.values()), len(modules)
    found = [f"{lines} lines of Python, at most {MAX_LINES}"] if lines > MAX_LINES else []
    if files > MAX_FILES:
        found.append(f"{files} Python files, at most {MAX_FILES}")
    folders = Counter("/".join(module.path[:-1]) for module in modules.values())
    return found + [
        f"{count} Python files in {folder or 'the top folder'}, at most {MAX_FILES_IN_FOLDER}"
        for folder, count in sorted(folders.items())
        if count > MAX_FILES_IN_FOLDER and folder.partition("/")[0] not in WIDE_FOLDERS
    ]


def describe_single_importers(modules: dict[str, Module], entries: set[str]) -> Iterator[str]:
    """Modules that one other imports, each with the reason; those without one first. Modules that no other imports are
    named where neither a string nor an entry point leads to them.
    """
    importers = map_importers(modules)
    rows, unused = [], []
    for name, module in sorted(modules.items()):
        if module.is_package or len(importers[name]) > 1:
            continue
        importer = next(iter(importers[name]), None)
        reason = find_reason(module, modules[importer] if importer else None, modules, entries)
        if importer is not None:
            rows.append((reason or NO_REASON, name, importer, module.lines))
        elif reason in (None, LARGE):
            unused.append(name)
    unexplained = sum(row[0] == NO_REASON for row in rows)
    yield f"modules with a single importer: {len(rows)}, of these without a reason: {unexplained}"
    for reason, name, importer, lines in sorted(rows, key=lambda row: row[0] != NO_REASON):
        yield f"  {reason}: {name} ({lines} lines; imported by {importer})"
    if unused:
        yield f"modules without an importer: {', '.join(unused)}"


def map_importers(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Which modules import each one. What a package hands on is imported from where it is defined."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    for importer in modules.values():
        for target, symbol in importer.imports:
            origin = follow(modules, target, symbol)
            if origin in found and origin != importer.name:
                found[origin].add(importer.name)
    return found


def follow(modules: dict[str, Module], target: str, symbol: str | None) -> str:
    """The module that ``from target import symbol`` is about."""
    if symbol is not None and f"{target}.{symbol}" in modules:
        return f"{target}.{symbol}"
    package = modules.get(target)
    if (
        package is not None
        and package.is_package
        and symbol is not None
        and symbol in package.bound
    ):
        return follow(modules, *package.bound[symbol])
    return target


def find_reason(
    module: Module, importer: Module | None, modules: dict[str, Module], entries: set[str]
) -> str | None:
    """Why a module that one other imports is a file of its own; None where nothing says so."""
    if module.name in entries or module.is_program:
        return "entry point"
    if any(module.name in other.loads for other in modules.values() if other is not module):
        return "loaded by name"
    if interface := find_interface(module, importer, modules):
        return interface
    return LARGE if module.lines > LARGE_LINES else None


def find_interface(
    module: Module, importer: Module | None, modules: dict[str, Module]
) -> str | None:
    """The protocol or registering base that a class of the module implements: by its bases, or by having all of a
    protocol's members where the module or its importer names the protocol.
    """
    mentioned = module.names | (importer.names if importer else set())
    for own in module.classes.values():
        if own.is_protocol:
            continue
        for base in ancestors(own, modules):
            if (base.is_protocol or base.is_registering) and base.module != own.module:
                return f"implements {base.name}"
        members = own.members.union(*(base.members for base in ancestors(own, modules)))
        for protocol in all_classes(modules.values()):
            if protocol.module == own.module or not protocol.is_protocol:
                continue
            if protocol.name in mentioned and protocol.members:
                wanted = protocol.members.union(*(b.members for b in ancestors(protocol, modules)))
                if wanted <= members:
                    return f"implements {protocol.name}"
    return None


def all_classes(modules: Iterable[Module]) -> Iterator[Class]:
    """Every class of the modules."""
    for module in modules:
        yield from module.classes.values()


def ancestors(own: Class, modules: dict[str, Module]) -> list[Class]:
    """The bases of a class that the package defines, and theirs."""
    found: list[Class] = []
    for base in own.bases:
        parent = find_class(modules[own.module], base, modules)
        if parent is not None and parent is not own:
            found += [parent, *ancestors(parent, modules)]
    return found


def find_class(module: Module, base: str, modules: dict[str, Module]) -> Class | None:
    """The class that a module calls ``base`` or ``imported.base``."""
    head, _, attribute = base.partition(".")
    if head not in module.bound:
        return module.classes.get(base)
    target, symbol = module.bound[head]
    origin = modules.get(follow(modules, target, symbol))
    return origin.classes.get(attribute or symbol or "") if origin else None


def entry_points(folder: Path) -> set[str]:
    """Modules that the project's ``pyproject.toml`` starts programs from."""
    project = folder.parent / "pyproject.toml"
    if not project.exists():
        return set()
    scripts = tomllib.loads(project.read_text()).get("project", {}).get("scripts", {})
    return {target.partition(":")[0] for target in scripts.values()}


if __name__ == "__main__":
    sys.exit(main())
