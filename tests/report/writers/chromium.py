"""Debian's Chromium without a window, spoken to over its debugging pipe: JSON messages that end in
a zero byte."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *(
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        "--disable-dev-shm-usage",
    ),
)


BECOME = (
    "import os, sys; [os.dup2(int(sys.argv[i + 1]), 3 + i) for i in (0, 1)]; os.execv(sys.argv[3],"
    " sys.argv[3:])"
)
"""Takes the two ends of the pipe as files 3 and 4, where Chromium looks for them."""


def path() -> str | None:
    """Where Chromium lies; None where it does not."""
    return shutil.which("chromium")


class Chromium:
    """One browser with one page."""

    def __init__(self) -> None:
        """Start it on an empty page, with a profile of its own that goes with it."""
        self._profile = tempfile.TemporaryDirectory(
            prefix="tonnage-chromium-", ignore_cleanup_errors=True
        )
        ours_read, answers = os.pipe()
        commands, ours_write = os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (commands, answers)]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                BECOME,
                *map(str, theirs),
                str(path()),
                *FLAGS,
                f"--user-data-dir={self._profile.name}",
                "about:blank",
            ],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (commands, answers, *theirs):
            os.close(end)
        self._answers, self._write, self._ahead = (
            ours_read,
            os.fdopen(ours_write, "wb"),
            bytearray(),
        )
        self._sent = 0
        self.events: list[dict[str, Any]] = []
        self._session = ""
        targets = self.ask("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        """The browser itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it and remove its profile."""
        self._write.close()
        self._process.terminate()
        self._process.wait(20)
        os.close(self._answers)
        self._profile.cleanup()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; what happens meanwhile is kept in ``events``."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._sent:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._ahead:
            more = os.read(self._answers, 1 << 16)
            if not more:
                raise RuntimeError("Chromium ended")
            self._ahead += more
        text, _, self._ahead = self._ahead.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def show(self, page: Path, width: int, height: int, *, dark: bool = False) -> None:
        """Open a file in a window of that size, and wait until it is loaded."""
        self.open(page.resolve().as_uri(), width, height, dark=dark)

    def open(self, address: str, width: int, height: int, *, dark: bool = False) -> None:
        """The same with an address."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.ask("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, script: str) -> Any:
        """What a script says; where another page replaces the one that was asked, what it says
        there."""
        try:
            answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        except RuntimeError as error:
            if "navigated" not in str(error):
                raise
            answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def spot(self, css: str, words: str = "") -> tuple[float, float]:
        """The middle of the first element of a selector that has those words and is shown, brought
        into view.

        Raises:
            LookupError: there is none, or a click there would reach another one.
        """
        shown = f"e.textContent.includes({json.dumps(words)}) && e.getClientRects().length"
        found = self.value(
            f"""(e => {{ if (!e) return null; e.scrollIntoView({{block: 'center', behavior: 'instant'}});
            const r = e.getBoundingClientRect(), x = r.left + r.width / 2, y = r.top + r.height / 2, hit = document.elementFromPoint(x, y);
            return e === hit || e.contains(hit) || [...(e.labels || [])].some(l => l.contains(hit)) ? [x, y] : null; }})
            ([...document.querySelectorAll({json.dumps(css)})].find(e => {shown}))"""
        )
        if found is None:
            raise LookupError(
                f"{css} {words}: there is nothing to click; the console says {self.complaints}"
            )
        return (found[0], found[1])

    def click(self, css: str, words: str = "") -> None:
        """The mouse pressed and released over an element."""
        self.drag(self.spot(css, words))

    def drag(self, begin: tuple[float, float], down: float = 0.0) -> None:
        """The mouse pressed at a place, moved down in ten steps where it is to move, and
        released."""
        x, y = begin
        self.ask(
            "Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1
        )
        for step in range(1, 11 if down else 1):
            self.ask(
                "Input.dispatchMouseEvent",
                type="mouseMoved",
                x=x,
                y=y + down * step / 10,
                button="left",
            )
        self.ask(
            "Input.dispatchMouseEvent",
            type="mouseReleased",
            x=x,
            y=y + down,
            button="left",
            clickCount=1,
        )

    def write(self, css: str, words: str) -> None:
        """Words typed into a field, in place of those that it has."""
        self.click(css)
        self.value("document.activeElement.select()")
        self.ask("Input.insertText", text=words)

    def drop(self, css: str, file: Path) -> None:
        """A file dropped on an element."""
        x, y = self.spot(css)
        data = {"items": [], "files": [str(file.resolve())], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.ask("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def press(self, key: str) -> None:
        """One key, down and up."""
        codes = {
            "Tab": 9,
            "ArrowUp": 38,
            "ArrowDown": 40,
            "ArrowRight": 39,
            "ArrowLeft": 37,
            "Escape": 27,
            "Enter": 13,
        }
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
            )

    def screenshot(self, file: Path, *, top: float = 0, height: float) -> None:
        """A part of the page as PNG, over its whole width."""
        wide = self.value("document.documentElement.clientWidth")
        clip = {"x": 0, "y": top, "width": wide, "height": height, "scale": 1}
        data = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        file.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page as it would be printed on A4."""
        return base64.b64decode(
            self.ask("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)[
                "data"
            ]
        )

    @property
    def requests(self) -> list[str]:
        """Addresses that the page asked for since it was opened."""
        return [
            e["params"]["request"]["url"]
            for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]

    @property
    def complaints(self) -> list[str]:
        """What the console said: errors, and what the page's own policy stopped."""
        logged = [
            e["params"]["entry"]["text"] for e in self.events if e.get("method") == "Log.entryAdded"
        ]
        return logged + [
            str(e["params"]) for e in self.events if e.get("method") == "Runtime.exceptionThrown"
        ]
