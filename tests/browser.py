"""A headless Chromium, driven by its DevTools protocol over the websockets that tornado has."""

import asyncio
import base64
import json
import shutil
import subprocess
import time
from contextlib import contextmanager
from urllib.request import urlopen

from tornado.websocket import websocket_connect

BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--remote-allow-origins=*", "--hide-scrollbars"),
)


class Page:
    """The one page of a browser."""

    def __init__(self, address):
        self._address, self._loop, self._number = address, asyncio.new_event_loop(), 0
        self._socket = self._wait_for(lambda: websocket_connect(address, max_message_size=1 << 28))

    def _wait_for(self, start, seconds=60):
        async def bounded():
            return await asyncio.wait_for(start(), seconds)

        return self._loop.run_until_complete(bounded())

    def _ask(self, method, **params):
        self._number += 1
        question = json.dumps({"id": self._number, "method": method, "params": params})
        self._wait_for(lambda: self._socket.write_message(question))
        while True:
            answer = json.loads(self._wait_for(self._socket.read_message))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, address):
        self._ask("Page.navigate", url=address)

    def evaluate(self, expression):
        """The value of a JavaScript expression; None where it raises."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def wait(self, expression, seconds=30):
        """The value of an expression, once it is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"{expression} is still {value!r}"
            time.sleep(0.1)
        return value

    def screenshot(self, path):
        """Write what is seen, as PNG."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self._socket.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()


@contextmanager
def browser(folder, size=(1400, 1000)):
    """Give a page of a browser of its own, which keeps its files in `folder`."""
    command = [BINARY, *_OPTIONS, f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port, deadline = folder / "DevToolsActivePort", time.monotonic() + 60
        while not (port.exists() and port.read_text().strip()):
            assert process.poll() is None, "the browser has ended"
            assert time.monotonic() < deadline, "the browser does not answer"
            time.sleep(0.05)
        with urlopen(f"http://127.0.0.1:{port.read_text().split()[0]}/json/list") as answer:
            [target] = [one for one in json.load(answer) if one["type"] == "page"]
        page = Page(target["webSocketDebuggerUrl"])
        try:
            yield page
        finally:
            page.close()
    finally:
        process.terminate()
        process.wait(20)
