"""The page as it is drawn, loosely against the pictures of the documentation."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.scene import ROOT, run_scene
from tools.screenshots import MACHINES, PICTURES, VMS, draw, main

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: what was drawn last is kept there
DRAWN = ROOT / "build/screenshots"
#: Of the cells of a picture that is made so few columns wide, this share may be of another colour.
COLUMNS, LARGEST_SHARE = 20, 0.035
#: the share of cells that differ, by the browser's own decoder; null where the sizes differ
COMPARE = """async ([one, other, columns]) => {
  const read = async (data) => {
    const image = new Image();
    image.src = 'data:image/png;base64,' + data;
    await image.decode();
    const rows = Math.round(image.height * columns / image.width);
    const context = new OffscreenCanvas(columns, rows).getContext('2d');
    context.imageSmoothingQuality = 'high';
    context.drawImage(image, 0, 0, columns, rows);
    return {size: [image.width, image.height], cells: context.getImageData(0, 0, columns, rows).data};
  };
  const [a, b] = [await read(one), await read(other)];
  if (String(a.size) !== String(b.size)) return null;
  let differ = 0;
  for (let at = 0; at < a.cells.length; at += 4)
    differ += [0, 1, 2].some((part) => Math.abs(a.cells[at + part] - b.cells[at + part]) > 12);
  return differ / (a.cells.length / 4);
}"""


@pytest.fixture(scope="module")
def drawn(browser: Browser) -> dict[str, Path]:
    """The pictures of ``./run screenshots``, by their names."""
    found: dict[str, Path] = {}
    for make, scenes in MACHINES:
        with run_scene("dgx-a100", VMS) as scene:
            make(scene)
            paths = draw(browser.browser_type, scene.open_web(), DRAWN, scenes)
            found |= {path.stem: path for path in paths}
    return found


def compare(page: Page, one: Path, other: Path) -> float | None:
    """The share of cells that differ."""
    data = [base64.b64encode(path.read_bytes()).decode() for path in (one, other)]
    share: float | None = page.evaluate(COMPARE, [*data, COLUMNS])
    return share


def test_pictures_are_like_those_of_the_documentation(
    browser: Browser, drawn: dict[str, Path]
) -> None:
    assert set(drawn) == {path.stem for path in PICTURES.glob("*.png")}
    page = browser.new_page()
    shares = {name: compare(page, path, PICTURES / path.name) for name, path in drawn.items()}
    page.close()
    unlike = {
        name: share for name, share in shares.items() if share is None or share > LARGEST_SHARE
    }
    assert not unlike, f"see {DRAWN}; if it is meant so: ./run screenshots"


def test_each_picture_shows_something_else(browser: Browser, drawn: dict[str, Path]) -> None:
    """What the comparison finds: another colour scheme, and a dialog."""
    page = browser.new_page()
    for name in ("dark", "plan", "layout"):
        share = compare(page, drawn[name], drawn["overview"])
        assert share is not None
        assert share > 3 * LARGEST_SHARE, name
    assert compare(page, drawn["narrow"], drawn["dark"]) is None
    page.close()


def test_screenshots_takes_one_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dark"]) == 2
    assert capsys.readouterr().err == "usage: ./run screenshots [DIRECTORY]\n"
