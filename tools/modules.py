"""A package's modules as their source shows them: what each imports, loads by name and defines. None is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: bases that make a class abstract or a protocol
_PROTOCOL_BASES = ("Protocol", "ABC")


@dataclass(slots=True)
class Class:
    """A class at the top of a module."""

    name: str
    module: str
    bases: list[str]
    members: set[str]
    """Methods and annotated attributes, without underscored ones."""
    is_protocol: bool
    is_registering: bool
    """Its subclasses are entered in a registry when they are defined."""


@dataclass(slots=True)
class Module:
    """One file."""

    name: str
    path: tuple[str, ...]
    lines: int
    is_package: bool
    is_program: bool
    imports: set[tuple[str, str | None]] = field(default_factory=set)
    """Modules of any package, each with the symbol asked for where there is one."""
    bound: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Names that imports bind anywhere in the file: module and symbol."""
    loads: set[str] = field(default_factory=set)
    """What strings name: full names of modules, and names that ``import_module`` may complete."""
    texts: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    """Strings of the module, and of these the beginnings that its ``import_module`` completes."""
    names: set[str] = field(default_factory=set)
    """Every name that the code mentions."""
    classes: dict[str, Class] = field(default_factory=dict)


def read_package(folder: Path) -> dict[str, Module]:
    """Every module below a package's folder, by full name."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        parts = (folder.name, *relative.with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source, str(path))
        is_program = parts[-1] == "__main__" or any(map(_asks_whether_main, tree.body))
        module = Module(name, relative.parts, source.count("\n"), is_package, is_program)
        _read_imports(module, tree)
        _read_loads(module, tree)
        _read_names(module, tree)
        found[name] = module
    for module in found.values():
        _read_tables(module, found)
    return found


def _read_tables(module: Module, modules: dict[str, Module]) -> None:
    """A table in a module that it imports has names like ``module.function`` for its ``import_module``."""
    for name in (
        {source for source, _ in module.imports} & modules.keys() if module.prefixes else ()
    ):
        heads = {text.partition(".")[0] for text in modules[name].texts if "." in text}
        module.loads |= {prefix + head for prefix in module.prefixes for head in heads}


def _asks_whether_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__ == '__main__'" in ast.unparse(node.test)


def _package_of(module: Module, level: int = 1) -> str:
    parts = module.name.split(".")
    return ".".join(parts[: len(parts) - level + (1 if module.is_package else 0)])


def _read_imports(module: Module, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module.imports.add((alias.name, None))
                if alias.asname:
                    module.bound[alias.asname] = (alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                source = ".".join(filter(None, (_package_of(module, node.level), source)))
            for alias in node.names:
                module.imports.add((source, alias.name))
                module.bound[alias.asname or alias.name] = (source, alias.name)


def _read_loads(module: Module, tree: ast.Module) -> None:
    strings = {
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    module.texts = strings
    module.loads |= {text.partition(":")[0] for text in strings if "." in text}
    if any(_is_import_module(node) for node in ast.walk(tree)):
        module.prefixes = {text for text in strings if text.endswith(".")}
        module.loads |= {prefix + text for prefix in module.prefixes for text in strings}
        relative = {text.lstrip(".") for text in strings if text.startswith(".")}
        module.loads |= {f"{_package_of(module)}.{text}" for text in relative}


def _is_import_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
        ("import_module", "__import__")
    )


def _read_names(module: Module, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            module.names.add(node.id)
        elif isinstance(node, ast.Attribute):
            module.names.add(node.attr)
        elif isinstance(node, ast.alias):
            module.names.add(node.name)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            module.classes[node.name] = _read_class(module, node)


def _read_class(module: Module, node: ast.ClassDef) -> Class:
    bases = [_base_name(base) for base in node.bases]
    members = set(_list_members(node))
    return Class(
        name=node.name, module=module.name, bases=bases,
        members={name for name in members if not name.startswith("_")},
        is_protocol=any(base.split(".")[-1] in _PROTOCOL_BASES for base in bases),
        is_registering="__init_subclass__" in members,
    )  # fmt: skip


def _base_name(node: ast.expr) -> str:
    """``Step`` of ``Step[World]``, ``module.Step`` of ``module.Step``."""
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node)


def _list_members(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            yield item.name
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id
        elif isinstance(item, ast.Assign):
            yield from (target.id for target in item.targets if isinstance(target, ast.Name))
