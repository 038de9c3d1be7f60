"""Debian's Chromium, without a window; it reaches nothing but this machine."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from tests.servers import CHECKOUT

WAIT_MILLISECONDS = 90_000
"""For a page that a busy machine serves."""


# Not for the whole session: while Playwright is open its event loop counts as running, and no
# other test in this process could call asyncio.run.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = os.environ.get("HACPO_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no Chromium: `apt-get install chromium`, or set HACPO_CHROMIUM to one")
    with sync_playwright() as playwright:
        # As root Chromium only starts without its sandbox.
        options = [] if os.geteuid() else ["--no-sandbox"]
        opened = playwright.chromium.launch(executable_path=path, args=options)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of somebody who has been there once."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(WAIT_MILLISECONDS)
    expect.set_options(timeout=WAIT_MILLISECONDS)
    # Once, a panel that covers a third of MLflow opens by itself.
    seen = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"
    context.add_init_script(seen)
    context.route(lambda url: urlsplit(url).hostname != "127.0.0.1", _refuse)
    yield context.new_page()
    context.close()


def _refuse(route: Route) -> None:
    route.abort()


@pytest.fixture
def keep() -> Callable[[Page, str], None]:
    """Keep a screenshot under this name in HACPO_SCREENSHOTS (build/screenshots)."""
    folder = Path(os.environ.get("HACPO_SCREENSHOTS") or CHECKOUT / "build" / "screenshots")

    def save(page: Page, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png")

    return save
