"""about_memory.py REPORT: opens a memory report in Firefox's about:memory, without a window, and prints
what the page shows, with exact figures.

    firefox-esr --headless --marionette ◄── TCP, "LENGTH:JSON" ──► this script

The protocol is Marionette's (firefox-source-docs, testing/marionette); only four commands are needed. The
profile is a fresh folder and goes with it. Not here: what the figures should be (the caller knows).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 90


class Marionette:
    """A session: commands are [0, id, name, parameters], answers [1, id, error, result]."""

    def __init__(self, port):
        self.id = 0
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)  # CLOCK: poll step of a bounded wait
        self.rest = b""
        self.receive()

    def receive(self):
        while b":" not in self.rest:
            self.more()
        length, self.rest = self.rest.split(b":", 1)
        while len(self.rest) < int(length):
            self.more()
        message, self.rest = self.rest[: int(length)], self.rest[int(length) :]
        return json.loads(message)

    def more(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise OSError("Firefox closed the connection")
        self.rest += data

    def command(self, name, parameters):
        self.id += 1
        text = json.dumps([0, self.id, name, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, result = self.receive()
        if error:
            raise RuntimeError(f"{name}: {error.get('message', error)}")
        return result

    def script(self, text):
        return self.command("WebDriver:ExecuteScript", {"script": text, "args": []})["value"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(page, wanted):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        text = page.script("return document.body.innerText")
        if wanted in text:
            return text
        time.sleep(0.2)  # CLOCK: poll step of a bounded wait
    raise RuntimeError(f"about:memory does not show {wanted!r}:\n{text}")


def shown(report):
    profile = tempfile.mkdtemp(prefix="skinflint-firefox-")
    port = free_port()
    with open(os.path.join(profile, "user.js"), "w", encoding="utf-8") as prefs:
        prefs.write(f'user_pref("marionette.port", {port});\n')
    command = ["firefox-esr", "--headless", "--no-remote", "--marionette", "--remote-allow-system-access",
               "--profile", profile, "about:blank"]
    environment = dict(os.environ, HOME=profile, MOZ_CRASHREPORTER_DISABLE="1")
    browser = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        page = Marionette(port)
        page.command("WebDriver:NewSession", {})
        file = os.path.abspath(report)
        page.command("WebDriver:Navigate", {"url": f"about:memory?file={file}"})
        # Once more, in bytes and with every row: the box is for what is loaded next.
        wait_for(page, "Other Measurements")
        page.script(
            "document.getElementById('verbose').checked = true;"
            f"window.wrappedJSObject.updateAboutMemoryFromFile({json.dumps(file)});"
        )
        return wait_for(page, " B (100.0%) -- explicit")
    finally:
        browser.terminate()
        try:
            browser.wait(20)
        except subprocess.TimeoutExpired:
            browser.kill()
        shutil.rmtree(profile, ignore_errors=True)


if __name__ == "__main__":
    print(shown(sys.argv[1]))
