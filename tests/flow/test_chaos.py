"""Everything at once, in little room: shared prefixes, branches, cancels, yields, cache off and on.
Each answer must be the one that the same request gets alone in a fresh daemon without a cache."""

import json
import random
import threading
import unittest

from harness import Scripted, assistant, chunk_text, content, main, system, user

BLOCKS, BLOCK_BYTES = 22, 64 * 2048
SCRIPT = {
    "ctx": 512,
    "kv_layers": 64,
    "pace_us": 100,
    "prefill_us_per_token": 5,
    "rules": [
        {"when": "long", "pieces": ["w "] * 150},
        {"when": "dice", "pieces": ["x"] * 60, "spread": True},
        {"when": "split", "pieces": [".", "\n\n", "你", "好"] * 8},
    ],
    "default": {"pieces": ["fine", "."]},
}
MEMORY = str((64 << 20) + (1 << 20) + BLOCKS * BLOCK_BYTES + 4096)
N_THREADS, N_ASKS = 6, 25


def asks(rng):
    """A few conversations that begin alike and part at random places."""
    base = "".join(rng.choice("abcdefgh ") for _ in range(180))
    result = []
    for _ in range(12):
        m = []
        if rng.random() < 0.7:
            m.append(system(base[: rng.randrange(20, 180)]))
        for _ in range(rng.randrange(3)):
            m.append(user(base[: rng.randrange(30)]))
            m.append(assistant(rng.choice(("fine.", ".\n\n你好", base[: rng.randrange(40)]))))
        m.append(user(rng.choice(("long ", "dice ", "split ", "")) + base[: rng.randrange(60)]))
        result.append({"messages": m, "temperature": 1, "seed": rng.randrange(5)})
    return result


class Chaos(unittest.TestCase):
    def test_every_answer_is_the_one_that_was_alone(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        bodies = asks(rng)
        with Scripted(SCRIPT, "--no-cache") as d:
            alone = [content(d.chat(**b)) for b in bodies]
        with self.subTest(seed=seed), Scripted(
            SCRIPT, "--memory", MEMORY, "--parallel", "5", "--queue", "64"
        ) as d:
            wrong = []
            threads = [
                threading.Thread(target=self.client, args=(d, rng.random(), bodies, alone, wrong))
                for _ in range(N_THREADS)
            ]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])
            d.until_idle()
            # At rest, and once the disk tier has written what it holds, the tree alone has blocks:
            # no turn has kept one.
            d.until(lambda: self.is_tree_alone(d.status()["memory"]), "only the tree holds blocks")

    def is_tree_alone(self, memory):
        self.assertLessEqual(memory["kv_bytes"], memory["kv_bytes_max"])
        return memory["kv_bytes"] == memory["kv_blocks"] * BLOCK_BYTES

    def client(self, d, seed, bodies, alone, wrong):
        rng = random.Random(seed)
        try:
            for _ in range(N_ASKS):
                i = rng.randrange(len(bodies))
                body = {**bodies[i], "hearth": {"cache": rng.random() < 0.8}}
                text = rng.choice((self.whole, self.stream, self.leave))(d, rng, body)
                if text is not None and text != alone[i]:
                    wrong.append((seed, i, text, alone[i]))
        except BaseException as e:  # told by the test's own thread
            wrong.append(repr(e))

    def whole(self, d, rng, body):
        return content(d.chat(**body))

    def stream(self, d, rng, body):
        with d.stream("/v1/chat/completions", {**body, "stream": True}) as s:
            text = "".join(chunk_text(e) for e in s)
            return text if s.is_done else "not done"

    def leave(self, d, rng, body):
        """Goes away at some time; says nothing."""
        s = d.raw()
        data = json.dumps({**body, "stream": rng.random() < 0.5}).encode()
        s.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
            % len(data)
            + data
        )
        s.settimeout(rng.random() * 0.03 + 0.001)
        try:
            s.recv(rng.randrange(1, 4000))
        except OSError:
            pass
        s.close()


if __name__ == "__main__":
    main()
