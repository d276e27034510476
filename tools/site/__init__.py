"""The documentation as a site that a browser reads from disk: ``./run docs [DIRECTORY]`` writes ``dist/site``.

``docs/index.md`` is the first page and the navigation: its sections with their links. Mistakes are a page that it does
not name, a link to a file or heading that does not exist, and anything that a page would load from a network.
"""

from __future__ import annotations

import json
import posixpath
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup
from mdit_py_plugins.anchors import anchors_plugin

from vgpumgr import __version__

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
INDEX = "docs/index.md"
#: pages outside docs/ that readers are sent to
PROJECT = ("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "ansible/README.md")
ASSETS = ("site.css", "site.js")
ELSEWHERE = ("http:", "https:", "mailto:")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the navigation."""

    title: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the navigation with its pages."""

    title: str
    entries: tuple[Entry, ...]

    @property
    def sources(self) -> set[str]:
        """The pages below it."""
        return {entry.source for entry in self.entries}


@dataclass(slots=True)
class Page:
    """A page as it is read; links are not yet those of the site."""

    source: str
    tokens: list[Token]
    title: str = ""
    anchors: set[str] = field(default_factory=set)

    @property
    def target(self) -> str:
        """Its path in the site."""
        return find_target(self.source)


def find_target(source: str) -> str:
    """Where a page of the repository is in the site."""
    return source.removeprefix("docs/").removesuffix(".md") + ".html"


def list_sources(root: Path) -> list[str]:
    """All pages of the documentation."""
    pages = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    return [*pages, *(name for name in PROJECT if (root / name).exists())]


def make_reader() -> MarkdownIt:
    """Markdown as GitHub shows it: tables, and its anchors of headings."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    return reader.use(anchors_plugin, max_level=4, permalink=True, permalinkSymbol="#")


def read_page(root: Path, source: str) -> Page:
    """One page, with its title and the anchors that links may name."""
    page = Page(source, make_reader().parse((root / source).read_text(encoding="utf-8")))
    for number, token in enumerate(page.tokens):
        if token.type == "heading_open":
            page.anchors.add(str(token.attrs.get("id", "")))
            if token.tag == "h1" and not page.title:
                page.title = read_text(page.tokens[number + 1])
    return page


def read_text(token: Token) -> str:
    """The plain text of an inline token."""
    shown = (child for child in token.children or () if child.type in ("text", "code_inline"))
    return "".join(child.content for child in shown).strip("# ").strip()


def read_sections(index: Page) -> list[Section]:
    """The navigation."""
    sections: list[tuple[str, list[Entry]]] = []
    for number, token in enumerate(index.tokens):
        if token.type == "heading_open" and token.tag == "h2":
            sections.append((read_text(index.tokens[number + 1]), []))
        elif token.type == "inline" and token.level >= 3 and sections:
            for child in token.children or ():
                if child.type == "link_open" and not is_permalink(child):
                    source = join(index.source, str(child.attrs["href"]))
                    sections[-1][1].append(Entry(read_text(token), source, find_target(source)))
    return [Section(title, tuple(entries)) for title, entries in sections]


def is_permalink(token: Token) -> bool:
    """Whether a link is the mark behind a heading."""
    return "header-anchor" in str(token.attrs.get("class", ""))


def join(source: str, link: str) -> str:
    """The path in the repository that a link of a page names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def build(target: Path, root: Path = ROOT) -> list[str]:
    """Write the site. The mistakes of its pages, none if all is well."""
    pages = {source: read_page(root, source) for source in list_sources(root)}
    sections = read_sections(pages[INDEX])
    named = {INDEX, *(source for section in sections for source in section.sources)}
    mistakes = [f"{INDEX} does not name {source}" for source in pages if source not in named]
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in ASSETS:
        shutil.copyfile(HERE / name, target / name)
    found = [section for page in pages.values() for section in list_search(page)]
    lines = ",\n".join(json.dumps(section, ensure_ascii=False) for section in found)
    (target / "search.js").write_text(f"window.SECTIONS = [\n{lines}\n];\n", encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), undefined=jinja2.StrictUndefined, autoescape=True,
        trim_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    template = environment.get_template("page.html.j2")
    for page in pages.values():
        mistakes += redirect(page, pages, root, target)
        reader = make_reader()
        body = reader.renderer.render(page.tokens, reader.options, {})
        html = template.render(
            page=page, sections=sections, version=__version__, body=Markup(body),
            top="../" * page.target.count("/"),
        )  # fmt: skip
        place = target / page.target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(html, encoding="utf-8")
    return mistakes


def redirect(page: Page, pages: Mapping[str, Page], root: Path, target: Path) -> Iterator[str]:
    """Make the links of a page those of the site; files beside the pages are copied. Yields links that lead nowhere."""
    for token in (t for block in page.tokens for t in block.children or ()):
        name = {"link_open": "href", "image": "src"}.get(token.type)
        if name is None or is_permalink(token):
            continue
        link = str(token.attrs[name])
        if link.startswith(ELSEWHERE):
            if token.type == "image":
                yield f"{page.source}: {link} is loaded from a network"
            continue
        path, _, anchor = link.partition("#")
        source = join(page.source, path) if path else page.source
        if source in pages:
            if anchor and anchor not in pages[source].anchors:
                yield f"{page.source}: {source} has no heading #{anchor}"
            there = pages[source].target + (f"#{anchor}" if anchor else "")
        elif (root / source).is_file() and not source.startswith(".."):
            there = f"files/{source}"
            place = target / there
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / source, place)
        else:
            yield f"{page.source}: there is no {link}"
            continue
        token.attrs[name] = "../" * page.target.count("/") + there


def list_search(page: Page) -> Iterator[tuple[str, str, str]]:
    """Title, address and text of each section."""
    title, url, text = page.title, page.target, ""
    for number, token in enumerate(page.tokens):
        if token.type == "heading_open" and token.tag != "h1":
            yield title, url, text
            heading = read_text(page.tokens[number + 1])
            title, text = f"{page.title} › {heading}", ""
            url = f"{page.target}#{token.attrs.get('id', '')}"
        elif token.type in ("inline", "fence", "code_block"):
            text += " " + " ".join(token.content.split())
    yield title, url, text
