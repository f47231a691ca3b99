"""What the tests of hearth replay share: lines of conversations, and a folder with a client."""

import json
import os
import subprocess
import tempfile
import unittest

from hearth import Hearth

SCRIPT = {
    "ctx": 2048,
    "pace_us": 200,
    "rules": [
        {"when": "endless", "pieces": ["on "], "then": "forever"},
        {"when": "silence", "pieces": []},
    ],
    "default": {"pieces": ["Hello", " there", "."]},
}
LONG = "The quick brown fox jumps over the lazy dog. " * 6


def openai(*texts, system=None):
    """A line of messages: user and assistant in turn."""
    messages = [{"role": "system", "content": system}] if system else []
    for i, text in enumerate(texts):
        messages.append({"role": "assistant" if i % 2 else "user", "content": text})
    return {"messages": messages}


class Here(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-")
        self.socket = os.path.join(self.folder, "s")
        self.h = Hearth(self.socket)

    def tearDown(self):
        self.h.close()
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, *lines, name="in.jsonl"):
        with open(self.path(name), "w") as f:
            for line in lines:
                f.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
        return self.path(name)

    def play(self, *words, code=0, where=None, **more):
        """The results of --json - ."""
        h = Hearth(where=where) if where else self.h
        r = h.run("replay", "--json", "-", *words, **more)
        self.assertEqual(r.code, code, r)
        if h is not self.h:
            h.close()
        self.result = r
        return json.loads(r.out.splitlines()[-1])

    def order(self, result):
        return [(t["conversation"], t["turn"]) for t in result["turns"]]
