"""Makes the pictures of `diagevo view`: a real browser looks at a real run. `make pictures` calls it; alone,
`python docs/pictures_view.py RUNS` takes a run that was played before."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent / "pictures"
SIZE = (1180, 720)
PROGRAM = [sys.executable, "-c", "from diagevo.cli.main import app; app()"]


def browse(runs: Path) -> None:
    """Serve the latest run of a folder, and take its overview and a cause that came back."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DIAGEVO_")}
    served = subprocess.Popen(
        [*PROGRAM, "view", "--run", "latest", "--port", "0", "--no-open"],
        env=environment | {"DIAGEVO_HOME": str(runs.resolve())},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert served.stdout is not None
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light")
            page.goto(served.stdout.readline().strip())
            _take(page, "view-run")
            page.emulate_media(color_scheme="dark")
            page.goto(re.sub(r"index\.html$", "log/CauseReactivated.html", page.url))
            page.locator("a[href*='causes/c']").first.click()
            page.wait_for_url("**/causes/c*.html")
            _take(page, "view-cause")
            browser.close()
    finally:
        served.terminate()
        served.wait()


def _take(page: Page, name: str) -> None:
    file = HERE / f"{name}.png"
    page.screenshot(path=file)
    print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        browse(Path(shutil.copytree(sys.argv[1], Path(scratch) / "runs")))
