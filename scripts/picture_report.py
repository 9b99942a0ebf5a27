"""Take the pictures of a report page for the documents: `python scripts/picture_report.py PAGE [DIRECTORY]`."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTH, HEIGHT = 1100, 1180


def take_pictures(browser: Browser, page: Path, directory: Path) -> list[Path]:
    """The top of the page, light and dark."""
    taken = []
    for scheme in ("light", "dark"):
        shown = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
        open_page(shown, page)
        taken.append(directory / f"report-{scheme}.png")
        shown.screenshot(path=taken[-1])
        shown.close()
    return taken


def open_page(shown: Page, page: Path) -> None:
    """Open the page and wait until its charts are drawn and its tables can be sorted."""
    shown.goto(page.absolute().as_uri())
    shown.wait_for_selector("body.ready", timeout=60_000)


def chromium() -> str:
    found = shutil.which("chromium")
    if found is None:
        sys.exit("error: a browser called chromium is needed; found none; run scripts/browser.sh")
    return found


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    directory = Path(sys.argv[2]) if len(sys.argv) == 3 else PICTURES
    directory.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        # As root, as in a container, Chromium has no sandbox.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for picture in take_pictures(browser, Path(sys.argv[1]), directory):
            print(f"{picture}: {picture.stat().st_size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
