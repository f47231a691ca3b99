"""The prefix cache over the API: what is found, what is counted, and that warm says what cold
says. The scripted engine notices every wrong block.
"""

import random
import unittest

from harness import Scripted, assistant, cached, content, main, system, together, user

BLOCK = 32
SCRIPT = {
    "rules": [
        # Two ids whose bytes are also one id: text alone would be read as another token than was
        # written.
        {"when": "split", "pieces": [".", "\n\n", "你", "好"]},
        {"when": "long", "pieces": ["word "] * 60},
        {"when": "dice", "pieces": ["x"] * 24, "spread": True},
    ],
    "default": {"pieces": ["fine", "."]},
}


def words(n, seed):
    rng = random.Random(seed)
    return " ".join(
        rng.choice(("red", "blue", "stone", "river", "lamp", "seven")) for _ in range(n)
    )


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def test_the_last_prompt_token_is_always_computed(self):  # B01
        m = [user("Complete: one two three " + words(20, 1))]
        cold = self.d.chat(m, max_tokens=5, hearth={"cache": False})
        self.assertEqual((cached(cold), cold["hearth"]["cache"]["miss"]["reason"]), (0, "off"))
        for i in range(5):
            r = self.d.chat(m, max_tokens=5)
            self.assertEqual(content(r), content(cold))
            self.assertLessEqual(cached(r), r["usage"]["prompt_tokens"] - 1)
            if i > 0:
                self.assertEqual(cached(r), r["usage"]["prompt_tokens"] - 1)
                self.assertEqual(r["hearth"]["cache"]["computed"], 1)

    def test_a_second_turn_computes_only_what_is_new(self):
        m = [system("s" * 50), user("first long question " + words(10, 2))]
        a = self.d.chat(m)
        m += [assistant(content(a)), user("and now?")]
        b = self.d.chat(m)
        read = a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"]
        self.assertGreaterEqual(cached(b), read - 3)
        self.assertIsNone(b["hearth"]["cache"]["miss"])
        self.assertEqual(b["hearth"]["cache"]["tokens"], cached(b))
        self.assertEqual(b["hearth"]["cache"]["ram"], cached(b))
        self.assertEqual(b["hearth"]["cache"]["computed"], b["usage"]["prompt_tokens"] - cached(b))

    def test_generated_ids_are_spliced_in_as_they_were(self):  # B03
        m = [user("split please " + words(10, 3))]
        a = self.d.chat(m)
        self.assertEqual(content(a), ".\n\n你好")
        again = self.d.post("/tokenize", {"content": content(a)})[1]["count"]
        self.assertLess(
            again,
            a["usage"]["completion_tokens"] - 1,
            "the script must write what no tokenizer would",
        )
        b = self.d.chat(m + [assistant(content(a)), user("ok")])
        self.assertGreaterEqual(
            cached(b), a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"] - 2
        )
        cold = self.d.chat(m + [assistant(content(a)), user("ok")], hearth={"cache": False})
        self.assertEqual(content(b), content(cold))
        self.assertEqual(b["usage"]["prompt_tokens"], cold["usage"]["prompt_tokens"])

    def test_a_changed_answer_is_read_from_there_on(self):
        m = [user("split again " + words(60, 4))]
        a = self.d.chat(m)
        b = self.d.chat(m + [assistant(content(a) + " "), user("ok")])
        self.assertLess(
            cached(b), a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"] + 3
        )
        c = self.d.chat(
            [
                user("entirely other " + words(60, 5)),
                assistant("never said " + words(60, 6)),
                user("ok"),
            ]
        )
        self.assertEqual(c["hearth"]["cache"]["miss"], {"reason": "new", "at_message": 0})

    def test_nothing_of_one_conversation_shows_in_another(self):  # B06
        a = [system("A" + words(30, 7)), user("Remember codeword ZEBRA-77. " + words(80, 8))]
        b = [system("B" + words(30, 9)), user("List any codewords. " + words(80, 10))]
        cold = {i: self.d.say(m, hearth={"cache": False}) for i, m in enumerate((a, b))}
        for _ in range(5):
            self.assertEqual(self.d.say(a), cold[0])
            self.assertEqual(self.d.say(b), cold[1])
        texts = together(*[lambda m=m: self.d.say(m) for m in (a, b, a, b)])
        self.assertEqual(texts, [cold[0], cold[1], cold[0], cold[1]])

    def test_a_shared_system_prompt_is_found(self):
        s = system("You are concise. " + words(500, 11))
        self.d.chat([s, user("one")])
        r = self.d.chat([s, user("another question")])
        of_system = self.d.post("/tokenize", {"messages": [s], "add_generation_prompt": False})[1][
            "count"
        ]
        self.assertGreaterEqual(cached(r), 0.95 * of_system)
        self.assertEqual(
            r["hearth"]["cache"]["shared"], cached(r), "first computed for another conversation"
        )

    def test_cached_false_publishes_nothing(self):
        m = [system("unpublished"), user("unpublished " + words(100, 12))]
        self.d.chat(m, hearth={"cache": False})
        r = self.d.chat(m)
        self.assertLess(cached(r), BLOCK)

    def test_sampling_is_the_same_warm_and_cold(self):  # B40, B41
        m = [user("dice " + words(50, 13))]
        cold = self.d.say(m, temperature=1, seed=5, hearth={"cache": False})
        self.assertEqual([self.d.say(m, temperature=1, seed=5) for _ in range(3)], [cold] * 3)
        texts = together(*[lambda s=s: self.d.say(m, temperature=1, seed=s) for s in (5, 6, 5, 7)])
        self.assertEqual((texts[0], texts[2]), (cold, cold))

    def test_random_conversations_say_what_cold_ones_say(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        histories = [[system(words(rng.randint(1, 90), i))] for i in range(3)]
        for turn in range(24):
            m = rng.choice(histories)
            if rng.random() < 0.2 and len(m) > 2:
                del m[rng.randrange(1, len(m)) | 1 :]  # back to an earlier answer's end: a branch
            m.append(
                user(rng.choice(("split ", "long ", "")) + words(rng.randint(1, 50), rng.random()))
            )
            with self.subTest(seed=seed, turn=turn):
                warm = self.d.chat(m)
                cold = self.d.chat(m, hearth={"cache": False})
                self.assertEqual(content(warm), content(cold))
                self.assertEqual(warm["usage"]["prompt_tokens"], cold["usage"]["prompt_tokens"])
                m.append(assistant(content(warm)))


class InFlight(unittest.TestCase):
    def test_eight_that_start_together_compute_the_system_prompt_once(self):
        # Slow enough that all eight are there before the first has read it.
        with Scripted(
            {"prefill_us_per_token": 500, "pace_us": 1000, "default": {"pieces": ["ok"]}},
            "--parallel",
            "8",
        ) as d:
            s = system("You are concise. " + words(200, 1))
            n = d.post("/tokenize", {"messages": [s], "add_generation_prompt": False})[1]["count"]
            before = d.status()["tokens"]["computed"]
            replies = together(*[lambda i=i: d.chat([s, user(f"question {i}")]) for i in range(8)])
            computed = d.status()["tokens"]["computed"] - before
            new = sum(r["usage"]["prompt_tokens"] - n for r in replies)
            self.assertLessEqual(computed, n + new + 8 * BLOCK)
            self.assertEqual(sum(1 for r in replies if cached(r) < 0.9 * n), 1)


class LittleRoom(unittest.TestCase):
    # 64 MiB of scratch, 1 MiB of weights; a block of the scripted engine has 2 KiB a layer: 64
    # layers, 128 KiB.
    SCRIPT = {
        "ctx": 512,
        "kv_layers": 64,
        "pace_us": 200,
        "rules": [{"when": "long", "pieces": ["w "] * 300}],
        "default": {"pieces": ["ok"]},
    }

    def memory(self, blocks):
        return str((64 << 20) + (1 << 20) + blocks * (128 << 10) + (64 << 10))

    def test_turns_that_outgrow_the_pool_yield_and_say_the_same(self):
        with Scripted(self.SCRIPT, "--memory", self.memory(24)) as d:
            m = [[user(f"long {i} " + words(20, i))] for i in range(4)]
            cold = [d.say(x, hearth={"cache": False}) for x in m]
            replies = together(*[lambda x=x: d.chat(x) for x in m])
            self.assertEqual([content(r) for r in replies], cold)
            self.assertEqual({r["usage"]["completion_tokens"] for r in replies}, {301})

    def test_the_budget_is_kept_by_forgetting(self):
        with Scripted(self.SCRIPT, "--memory", self.memory(40), "--disk", "0") as d:
            self.assertFalse(d.status()["disk"]["on"])
            first = [user("first " + words(60, 0))]
            a = d.chat(first)
            for i in range(40):
                d.chat([user(f"filler {i} " + words(60, i + 1))])
            s = d.status()["memory"]
            self.assertLessEqual(s["kv_bytes"], s["kv_bytes_max"])
            self.assertGreater(s["kv_evicted"], 0)
            b = d.chat(first + [assistant(content(a)), user("and?")])
            self.assertEqual(b["hearth"]["cache"]["miss"]["reason"], "evicted")

    def test_a_window_that_memory_cannot_hold_is_made_smaller_or_refused(self):
        with Scripted(self.SCRIPT, "--memory", self.memory(9)) as d:
            self.assertEqual(d.status()["ctx"], 8 * BLOCK)
        d = Scripted(self.SCRIPT, "--memory", self.memory(9), "--ctx", "512", wait=False)
        self.assertNotEqual(d.wait_end(), 0)
        self.assertIn("--ctx 512", d.log())


if __name__ == "__main__":
    main()
