"""The README's `sh` blocks, run as they stand against a daemon with the default model."""

import json
import os
import re
import subprocess
import unittest

from harness import PATIENCE_S, SOURCE, Real, main


def commands():
    """The command lines of the README's sh blocks; a backslash joins lines."""
    with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as f:
        blocks = re.findall(r"^```sh\n(.*?)^```", f.read(), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip()]


class Readme(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Real()

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def run_line(self, pattern):
        """What the one command that matches prints."""
        found = [c for c in commands() if re.search(pattern, c)]
        self.assertEqual(len(found), 1, f"{pattern}: {found}")
        self.ran.add(found[0])
        p = subprocess.run(
            ["/bin/sh", "-c", found[0]],
            capture_output=True,
            timeout=PATIENCE_S * 5,
            env={**os.environ, "SOCKET": self.d.socket_path},
        )
        self.assertEqual((p.returncode, p.stderr), (0, b""), found[0])
        return p.stdout.decode()

    def test_every_line(self):
        self.ran = set()
        with self.subTest("health"):
            self.assertEqual(json.loads(self.run_line(r"/health$"))["status"], "ok")
        with self.subTest("models"):
            self.assertRegex(json.loads(self.run_line(r"/v1/models$"))["data"][0]["id"], "SmolLM2")
        with self.subTest("a question"):
            reply = json.loads(self.run_line(r"capital of Japan"))
            self.assertIn("Tokyo", reply["choices"][0]["message"]["content"])
            self.assertIn("cached_tokens", reply["usage"]["prompt_tokens_details"])
            self.assertIn("timings", reply["hearth"])
        with self.subTest("a stream"):
            events = self.run_line(r'"stream":true').split("\n\n")
            self.assertEqual(events[-2:], ["data: [DONE]", ""])
            text = "".join(
                json.loads(e[6:])["choices"][0]["delta"].get("content", "") for e in events[:-2]
            )
            self.assertGreater(len(text), 5)
        with self.subTest("a response"):
            reply = json.loads(self.run_line(r"/v1/responses"))
            self.assertIn(reply["status"], ("completed", "incomplete"))
            self.assertRegex(reply["output"][0]["content"][0]["text"], r"\w")
            self.assertEqual(self.d.get(f"/v1/responses/{reply['id']}")[0], 200)
        self.assertEqual(self.ran, set(commands()), "a line of the README that nothing checks")


if __name__ == "__main__":
    main()
