"""Chromium without a window, driven over a pipe: pages at any width, light or dark, measured and photographed.

https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import itertools
import json
import os
import shutil
import subprocess

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One tab; `with Browser(folder) as browser`, whose profile goes into the folder."""

    def __init__(self, folder):
        self._numbers = itertools.count(1)
        self._folder = folder

    def __enter__(self):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   f"--user-data-dir={self._folder / 'profile'}", "--hide-scrollbars",
                   "--remote-debugging-pipe", "about:blank"]  # fmt: skip
        # The protocol wants descriptors 3 and 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb")
        self._session = None
        tab = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=tab, flatten=True)
        self._session = attached["sessionId"]
        self.ask("Page.enable")
        return self

    def __exit__(self, *_):
        self._session = None
        self.ask("Browser.close")
        self._in.close()
        self._out.close()
        self._process.wait(timeout=30)

    def ask(self, method, **parameters):
        """Send a command and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            found = self._next()
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]

    def _next(self):
        text = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        return json.loads(text)

    def look(self, width, *, dark, height=900):
        """Pages are that wide from now on, and light or dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        """Go to a page and wait until it is loaded."""
        self.ask("Page.navigate", url=url)
        self.run(
            "new Promise(r => document.readyState === 'complete' ? r() : addEventListener('load', r))"
        )

    def run(self, code):
        """The value of an expression on the page; of a promise, when it is kept."""
        found = self.ask("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def photograph(self, path):
        """Write a PNG of what is seen."""
        data = self.ask("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))
