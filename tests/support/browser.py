# SPDX-License-Identifier: Apache-2.0
"""Chromium without a screen, driven over the W3C's WebDriver protocol."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from types import TracebackType
from typing import Any

_START_S = 30.0
_FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root, too
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def missing() -> str:
    """What is not there of what it needs; empty where all is."""
    return " and ".join(name for name in ("chromium", "chromedriver") if shutil.which(name) is None)


class Browser:
    """One window of a browser of its own.

    Args:
        width, height: of the window, in pixels.
        dark: whether pages are told that dark colours are wanted.
    """

    def __init__(self, width: int = 1280, height: int = 1000, *, dark: bool = False) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        self._at = f"http://127.0.0.1:{port}"
        self._home = tempfile.TemporaryDirectory(prefix="browser-")
        flags = [*_FLAGS, f"--user-data-dir={self._home.name}", f"--window-size={width},{height}"]
        asked: dict[str, Any] = {"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            started = self._request("POST", "/session", {"capabilities": {"alwaysMatch": asked}}, until_s=_START_S)
            self._at += f"/session/{started['sessionId']}"
            scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
            self.devtools("Emulation.setEmulatedMedia", features=scheme)
            # A window is never as narrow as a telephone.
            self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._request("DELETE", "", None)
        finally:
            self.close()

    def close(self) -> None:
        self._driver.terminate()
        self._driver.wait(10)
        self._home.cleanup()

    def open(self, url: str) -> None:
        """Load a page, and wait until that is done."""
        self._request("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        """What a function with this body returns in the page."""
        return self._request("POST", "/execute/sync", {"script": script, "args": []})

    def until(self, script: str, within_s: float = 15.0) -> Any:
        """What a function with this body returns, once that is true of it."""
        deadline = time.monotonic() + within_s
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"{script}: {found!r}; the page: {self.run('return document.body.innerText')}"
            time.sleep(0.05)
        return found

    def console(self) -> list[str]:
        """What the page's console has said since this was asked last."""
        return [entry["message"] for entry in self._request("POST", "/se/log", {"type": "browser"})]

    def picture(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(self._request("GET", "/screenshot", None))

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self._request("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _request(self, method: str, path: str, body: Any, *, until_s: float = 0.0) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._at + path, data, {"Content-Type": "application/json"}, method=method)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + until_s
        while True:
            try:
                with direct.open(request, timeout=60) as answer:
                    return json.loads(answer.read())["value"]
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{method} {path}: {error.read().decode()[:500]}") from error
            except urllib.error.URLError:
                if time.monotonic() > deadline or self._driver.poll() is not None:
                    raise
                time.sleep(0.05)
