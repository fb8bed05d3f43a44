"""A page in headless Chromium, over the pipe of its DevTools protocol. Standard library only."""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

NAMES = ("chromium-headless-shell", "chromium")


class Browser:
    """One page. `exceptions`: what its scripts threw or logged as errors; `requests`: every address that it asked
    for. Raises FileNotFoundError with the package's name where there is no browser."""

    def __init__(self, width=1280, height=900):
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            raise FileNotFoundError(f"no {' or '.join(NAMES)} on the search path: install the package {NAMES[0]} (Debian)")
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands_read, self.commands = os.pipe()
        self.answers, answers_write = os.pipe()

        def as_browser_wants():  # it reads from 3 and writes to 4
            read, write = os.dup(commands_read), os.dup(answers_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
             f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}", "--force-color-profile=srgb",
             "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False,
            preexec_fn=as_browser_wants)
        os.close(commands_read)
        os.close(answers_write)
        self.left, self.number, self.session = b"", 0, None
        self.exceptions, self.requests = [], []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session = None
        self.ask("Browser.close")
        self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()

    def next_message(self):
        while b"\0" not in self.left:
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise ConnectionError("the browser has ended")
            self.left += part
        text, self.left = self.left.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        method, what = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.exceptions.append(what["exceptionDetails"].get("exception", {}).get("description", str(what)))
        elif method == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.exceptions.append(what["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])
        return method

    def ask(self, method, **parameters):
        """The answer to a command; events that come before it are noted."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.note(answer)

    def open(self, path):
        """Until the page and its scripts have run."""
        self.ask("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while self.note(self.next_message()) != "Page.loadEventFired":
            pass

    def run(self, script):
        """The value of an expression of the page's."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def count(self, selector):
        return self.run(f"document.querySelectorAll({json.dumps(selector)}).length")

    def middle_of(self, selector):
        return self.run(f"(() => {{ const at = document.querySelector({json.dumps(selector)}); at.scrollIntoView(); const r = "
                        "at.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")

    def wheel(self, selector, by):
        x, y = self.middle_of(selector)
        self.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=by)

    def move_to(self, selector):
        x, y = self.middle_of(selector)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self):
        """PNG of the whole page."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        return base64.b64decode(self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])
