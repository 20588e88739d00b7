"""The pictures of docs/images, taken of a real service over the example project: ``make screenshots``.

With an argument, the user's folder is made there for the time of it, so that its path on the pictures is a short one.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

from tests.browser import chromium
from tests.browser.conftest import sign_in
from tests.interfaces.conftest import Kiwi
from tests.interfaces.test_serve import at, serving
from tests.shared import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

IMAGES = ROOT / "docs/images"
MAX_BYTES = 150_000
QUESTION = "/search?q=a+deploy+went+wrong,+take+it+back"


class Picture(NamedTuple):
    """A page as it is shown in the documentation.

    Of ``opened``, the first element is clicked before. The page is loaded again when the text ``awaited`` is there.
    """

    name: str
    path: str
    scheme: str = "light"
    opened: str = ""
    awaited: str = ""


OF_A_NEW_USER = [Picture("first-steps", "/")]
PICTURES = [
    Picture("search", QUESTION, opened=".hit summary"),
    Picture("search-dark", QUESTION, "dark", ".hit summary"),
    Picture("home", "/"),
    Picture("home-dark", "/", "dark"),
    Picture("item", "/item?ref=directive:acme/deploy/rollback"),
    Picture("add", "/add?chosen={project}"),
    Picture("indexing", "/indexing", opened="form[action='/indexing/run'] button", awaited="The run has ended"),
    Picture("sources", "/sources"),
    Picture("registry", "/registry"),
    Picture("stores", "/stores"),
]


@contextmanager
def new_user() -> Iterator[Kiwi]:
    """A user with an empty home and project."""
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        if len(sys.argv) > 1:
            folder = Path(sys.argv[1])
            folder.mkdir()
            stack.callback(shutil.rmtree, folder)
        (folder / "run").mkdir(mode=0o700)
        (folder / "acme").mkdir()
        cache = folder / ".cache/kiwi"
        cache.mkdir(parents=True)
        (cache / "models").symlink_to(Path(os.environ.get("KIWI_CACHE_DIR", ROOT / ".cache/kiwi")) / "models")
        settings = {"KIWI_CACHE_DIR": str(cache), "KIWI_PRINCIPAL": "ada@acme.example"}
        yield at(Kiwi(folder, folder / "acme"), folder / "run", KIWI_PORT="0", **settings)


def fill(user: Kiwi) -> None:
    """Give the user the example items, signed and indexed, and some documents."""
    user.run("init")
    user.run("keys", "new")
    user.copy(ROOT / "examples/acme/.ai")
    user.run("sign", ".ai")
    user.run("index")
    for path in (ROOT / "docs").glob("*.md"):
        (user.cwd / path.name).write_bytes(path.read_bytes())
    user.run("workspace", "index", ".")
    user.run("publish", "--all")
    user.run("registry", "start")


def take(browser: Browser, user: Kiwi, pictures: list[Picture]) -> None:
    """Save these pictures of the user's service."""
    url, cookies = user.json("status")["service"]["url"], sign_in(browser, user)
    for picture in pictures:
        viewport = {"width": 1280, "height": 800}
        context = chromium.new_context(browser, cookies, base_url=url, color_scheme=picture.scheme, viewport=viewport)
        page = context.new_page()
        page.goto(picture.path.format(project=user.cwd), wait_until="networkidle")
        if picture.opened:
            page.locator(picture.opened).first.click()
        if picture.awaited:
            page.locator("main", has_text=re.compile(picture.awaited.replace(" ", r"\s+"))).wait_for()
            page.goto(picture.path, wait_until="networkidle")
        _shrink(chromium.keep(page, IMAGES, picture.name))
        context.close()


def _shrink(path: Path) -> None:
    """Reduce a picture to 256 colours, which pages of text do not exceed by much."""
    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)
    assert path.stat().st_size <= MAX_BYTES, f"{path} has {path.stat().st_size} bytes"
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1000} kB")


def main() -> None:
    """Take all pictures."""
    if why := chromium.why_missing():
        sys.exit(why)
    for prepare, pictures in ((lambda _: None, OF_A_NEW_USER), (fill, PICTURES)):
        with new_user() as user:
            prepare(user)
            with serving(user), chromium.launched() as browser:
                take(browser, user, pictures)
            user.run("registry", "stop", expect=None)


if __name__ == "__main__":
    main()
