"""The documentation: its site opens from disk, every link leads somewhere, and what pages quote exists."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tools.record import PAGE, PICTURE, list_lines
from tools.record import main as draw_picture
from tools.site import ROOT, build, list_sources
from vgpumgr.model.checks import CHECKS

ERROR_ID = re.compile(r"\bVG\d{3}\b")
CHECK_ID = re.compile(r"doctor (?:--check|explain) ([a-z-]+)|(?<=, )`--check ([a-z-]+)`")


class Reader(HTMLParser):
    """Addresses, identifiers and text of a page, as a browser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.add(values.get("id", ""))
        if tag == "a":
            self.links.append(values["href"])
        elif address := values.get("src") or values.get("href"):
            self.loads.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("docs") / "site"
    assert build(target) == []
    return target


def list_pages(site: Path) -> dict[Path, Reader]:
    pages = [path for path in site.rglob("*.html") if "files" not in path.parts]
    return {path: Reader(path.read_text()) for path in pages}


def test_every_link_of_the_site_leads_to_a_file_and_a_heading(site: Path) -> None:
    pages = list_pages(site)
    assert len(pages) == len(list_sources(ROOT)) > 35
    broken = []
    followed = 0
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"https?:|mailto:", link):
                continue
            name, _, anchor = unquote(link).partition("#")
            there = (path.parent / name).resolve() if name else path
            followed += 1
            if not there.is_file() or (anchor and anchor not in pages[there].ids):
                broken.append(f"{path.name}: {link}")
    assert broken == []
    assert followed > 1000


def test_nothing_is_loaded_from_a_network(site: Path) -> None:
    for path, page in list_pages(site).items():
        for address in page.loads:
            assert not re.match(r"\w+:|//", address), (path, address)
            assert (path.parent / address).is_file(), (path, address)
    for path in site.rglob("*.css"):
        assert not re.search(r"@import|url\(", path.read_text())
    for path in site.rglob("*.svg"):
        assert not re.search(r"@import|url\((?!#)|href=\"http", path.read_text())


def test_the_navigation_names_every_page(site: Path) -> None:
    pages = list_pages(site)
    first = pages[site / "index.html"]
    named = {(site / link.partition("#")[0]).resolve() for link in first.links}
    assert {path.resolve() for path in pages} <= named


def copy_docs(target: Path) -> Path:
    """The pages alone: links to other files lead nowhere there."""
    shutil.copytree(ROOT / "docs", target / "docs")
    for name in list_sources(ROOT):
        if not name.startswith("docs/"):
            (target / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    return target


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("[x](gone.md)", "docs/vgpu.md: there is no gone.md"),
        ("[x](errors.md#gone)", "docs/vgpu.md: docs/errors.md has no heading #gone"),
        ("[x](#gone)", "docs/vgpu.md: docs/vgpu.md has no heading #gone"),
        ("[x](adr/)", "docs/vgpu.md: there is no adr/"),
        ("![x](https://example.org/x.svg)", "is loaded from a network"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, line: str, mistake: str) -> None:
    root = copy_docs(tmp_path / "tree")
    page = root / "docs/vgpu.md"
    page.write_text(f"# vGPUs\n\n[errors](errors.md)\n{line}\n")
    (found,) = (one for one in build(tmp_path / "site", root) if one.startswith("docs/vgpu.md"))
    assert mistake in found


def test_a_page_that_the_navigation_does_not_name_is_found(tmp_path: Path) -> None:
    root = copy_docs(tmp_path / "tree")
    (root / "docs/howto/new.md").write_text("# New\n")
    assert "docs/index.md does not name docs/howto/new.md" in build(tmp_path / "site", root)


def list_quoted(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    for source in list_sources(ROOT):
        for match in pattern.finditer((ROOT / source).read_text()):
            yield source, next(part for part in (*match.groups(), match[0]) if part)


def test_errors_that_pages_quote_exist() -> None:
    known = set(
        re.findall(r"^\| (VG\d{3}) \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    )
    quoted = list(list_quoted(ERROR_ID))
    assert len({number for source, number in quoted if source == "docs/troubleshooting.md"}) > 30
    assert [(source, number) for source, number in quoted if number not in known] == []


def test_checks_that_pages_quote_exist() -> None:
    known = {check.id for check in CHECKS}
    quoted = list(list_quoted(CHECK_ID))
    assert len(quoted) > 15
    assert [(source, name) for source, name in quoted if name not in known | {"ID"}] == []


def test_the_picture_of_the_readme_shows_the_session_of_the_demo(
    request: pytest.FixtureRequest,
) -> None:
    """tests/fresh runs the demo and compares what it prints with that session."""
    if request.config.getoption("--regenerate"):
        draw_picture()
    lines = list_lines(PAGE.read_text())
    assert len(lines) > 20
    assert "PASS vectoradd 10007 elements" in lines
    pieces = re.findall(r"<text [^>]*clip-path=[^>]*>(.*?)</text>", PICTURE.read_text())
    shown = unescape("".join(pieces)).replace("\xa0", " ")
    assert "".join(shown.split()) == "".join("".join(lines).split())


def test_the_readme_is_read_in_a_minute_and_sends_each_reader_on() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) < 500
    assert "](docs/session.svg)" in text
    for page in ("tutorial", "install", "concepts", "troubleshooting", "support-matrix", "index"):
        assert f"](docs/{page}.md" in text
    commands = re.findall(r"^    \./run (\w+)", text, re.MULTILINE)
    assert commands == ["demo", "demo", "test"]


def test_symptoms_that_the_page_quotes_are_what_the_program_prints() -> None:
    """The first column of the tables; ``...`` stands for a value."""
    rows = re.findall(
        r"^\| (.+?) \| ", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE
    )
    quoted = [phrase for row in rows for phrase in re.findall(r"`([^`]+)`", row)]
    assert len(quoted) > 12
    files = [p for kind in ("py", "c", "h", "yaml") for p in (ROOT / "vgpumgr").rglob(f"*.{kind}")]
    printed = "\n".join(path.read_text(errors="replace") for path in files)
    pieces = [(phrase, piece) for phrase in quoted for piece in phrase.split(" ... ")]
    known = (
        "--live",
        "vf enable",
        "gpu list",
        "vm list",
        "--host",
        "--backend",
        "driver-version",
        "doctor",
    )
    assert [
        phrase for phrase, piece in pieces if piece not in printed and phrase not in known
    ] == []
