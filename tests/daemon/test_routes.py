#!/usr/bin/python3
"""The loop's table of paths and the history thread's table of handlers name the same endpoints."""
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(name):
    with open(os.path.join(ROOT, "daemon", name)) as f:
        return f.read()


class Routes(unittest.TestCase):
    def test_both_tables_agree(self):
        loop = set()
        for path, methods, kind in re.findall(r'^    \{"([^"]+)", ([A-Z_| ]+), (ROUTE_\w+)\}',
                                              read("route.c"), re.M):
            if kind in ("ROUTE_HISTORY", "ROUTE_TURN"):
                loop |= {(m.strip()[6:], path) for m in methods.split("|")}
        history = set(re.findall(r'^    \{"([A-Z]+)", "([^"]+)", api_', read("history.c"), re.M))
        self.assertGreater(len(history), 15)
        self.assertEqual(loop, history)


if __name__ == "__main__":
    unittest.main()
