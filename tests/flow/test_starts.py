"""First starts with the default model: its weights' hash isn't known yet, and its file is read by
two daemons at the same time.
"""

import os
import tempfile
import unittest

from harness import Real, cached, main, system, user

STORY = " ".join(f"On day {i} the river rose by {i * 7 % 30} fingers." for i in range(20))
QUESTION = [system(STORY), user("Name one day.")]


def kinds(cache):
    """The first words of what is remembered of files' hashes."""
    with open(os.path.join(cache, "fingerprints"), encoding="ascii") as f:
        return [line.split()[0] for line in f]


class Starts(unittest.TestCase):
    def test_two_first_starts_of_one_cache_make_one_identity(self):
        """Who comes second has no disk tier, and does all else."""
        with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
            cache = os.path.join(folder, "cache")
            places = [os.path.join(folder, name) for name in ("a", "b")]
            os.mkdir(cache, 0o700)
            for place in places:
                os.mkdir(place)
                os.symlink(cache, os.path.join(place, "cache"))
            both = [Real(folder=p, wait=False) for p in places]
            for d in both:
                d.wait_ready()
            said = [d.say(QUESTION, max_tokens=12) for d in both]
            self.assertEqual(said[0], said[1])
            for d in both:
                d.stop()
            self.assertEqual(kinds(cache), ["hearth-weights-3"])
            # Under the remembered hash is found what was written under the computed one.
            with Real(folder=places[1]) as d:
                reply = d.chat(QUESTION, max_tokens=12)
                self.assertEqual(reply["choices"][0]["message"]["content"], said[0])
                self.assertGreater(cached(reply), 0)
            # And so it is when it has to be computed again.
            os.unlink(os.path.join(cache, "fingerprints"))
            with Real(folder=places[0]) as d:
                self.assertGreater(cached(d.chat(QUESTION, max_tokens=12)), 0)
            self.assertEqual(kinds(cache), ["hearth-weights-3"])

    def test_a_damaged_memory_of_hashes_is_none(self):
        with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
            with Real(folder=folder) as d:
                said = d.say(QUESTION, max_tokens=12)
            path = os.path.join(folder, "cache", "fingerprints")
            with open(path, "rb") as f:
                good = f.read()
            at = len(good) - 20  # in the hash or its check
            with open(path, "wb") as f:
                f.write(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            with Real(folder=folder) as d:
                reply = d.chat(QUESTION, max_tokens=12)
                self.assertEqual(reply["choices"][0]["message"]["content"], said)
                self.assertGreater(cached(reply), 0)
            with open(path, "rb") as f:
                self.assertEqual(f.read(), good)


if __name__ == "__main__":
    main()
