"""SIGTERM and SIGHUP: streams end with an error, whole answers with a 503, exit code 0 within the
bound, the socket is gone.
"""

import json
import os
import signal
import time
import unittest

from harness import PATIENCE_S, Scripted, main, user

SCRIPT = {
    "pace_us": 2000,
    "prefill_us_per_token": 300,
    "rules": [{"when": "forever", "pieces": ["tick "], "then": "forever"}],
    "default": {"pieces": ["ok"]},
}
BOUND_S = 5 if PATIENCE_S <= 60 else PATIENCE_S


class Stop(unittest.TestCase):
    def stop_in_time(self, d, number=signal.SIGTERM):
        t = time.monotonic()
        d.signal(number)
        self.assertEqual(d.wait_end(BOUND_S), 0, d.log())
        self.assertLess(time.monotonic() - t, BOUND_S)
        self.assertFalse(os.path.exists(d.socket_path))

    def test_during_decode_a_stream_ends_with_an_error(self):  # B61
        with Scripted(SCRIPT) as d:
            s = d.chat_stream([user("forever")])
            it = iter(s)
            for _ in range(4):
                next(it)
            self.stop_in_time(d)
            events = list(it)
            self.assertIn("error", events[-1])
            self.assertFalse(s.is_done, "no [DONE] after an error")

    def test_asked_twice(self):  # B61
        with Scripted(SCRIPT) as d:
            s = d.stream("/v1/responses", {"input": "forever", "stream": True})
            it = iter(s)
            for _ in range(8):
                next(it)
            for _ in range(20):  # at any moment of stopping
                d.signal()
                time.sleep(0.0002)
            self.stop_in_time(d)
            last = list(it)[-1]
            self.assertEqual(last["type"], "response.failed")
            text = last["response"]["output"][0]["content"][0]["text"]
            d.start()
            saved = d.get("/v1/responses/" + last["response"]["id"])[1]
            self.assertEqual(saved["output"][0]["content"][0]["text"], text)

    def test_during_prefill(self):  # B61
        with Scripted(SCRIPT) as d:
            s = d.chat_stream([user("z" * 7000)])
            d.until(lambda: d.status()["turns"]["running"] == 1, "running")
            self.stop_in_time(d)
            self.assertIn("error", list(s)[-1])

    def test_a_whole_answer_is_a_503(self):
        with Scripted(SCRIPT, "--parallel", "1") as d:
            bodies = []
            socks = []
            for _ in range(2):  # one runs, one waits
                s = d.raw()
                data = json.dumps({"messages": [user("forever")]}).encode()
                s.sendall(
                    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                    % len(data)
                    + data
                )
                socks.append(s)
            d.until(lambda: d.status()["turns"]["queued"] == 1, "queued")
            self.stop_in_time(d)
            for s in socks:
                data = b""
                while True:
                    more = s.recv(65536)
                    if not more:
                        break
                    data += more
                s.close()
                bodies.append(data)
            for data in bodies:
                self.assertTrue(data.startswith(b"HTTP/1.1 503"), data)
                self.assertIn(b'"error"', data)

    def test_with_an_idle_connection(self):  # B61
        with Scripted(SCRIPT) as d:
            s = d.raw()
            self.stop_in_time(d)
            self.assertEqual(s.recv(100), b"")

    def test_with_a_client_that_does_not_read(self):  # B61
        with Scripted({**SCRIPT, "pace_us": 0, "ctx": 8192}) as d:
            s = d.raw()
            data = json.dumps({"messages": [user("forever")], "stream": True}).encode()
            s.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
                % len(data)
                + data
            )
            d.until(lambda: d.n_generated() > 2000, "much is waiting to be read")
            self.stop_in_time(d)
            s.close()

    def test_when_nothing_runs(self):
        with Scripted(SCRIPT) as d:
            self.assertEqual(d.say([user("x")]), "ok")
            self.stop_in_time(d)

    def test_a_hangup_is_a_stop(self):
        with Scripted(SCRIPT) as d:
            s = d.chat_stream([user("forever")])
            it = iter(s)
            next(it)
            for _ in range(3):
                d.signal(signal.SIGHUP)
            self.stop_in_time(d, signal.SIGHUP)
            self.assertIn("error", list(it)[-1])

    def test_an_ignored_hangup_stays_ignored(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        try:
            d = Scripted(SCRIPT)
        finally:
            signal.signal(signal.SIGHUP, before)
        with d:
            d.signal(signal.SIGHUP)
            self.assertEqual(d.say([user("x")]), "ok")
            self.stop_in_time(d)

    def test_while_loading(self):
        d = Scripted({**SCRIPT, "load_ms": 60000}, wait=False)
        with d:

            def loading():
                try:
                    return d.get("/health")[0] == 503
                except OSError:
                    return False

            d.until(loading, "loading")
            self.stop_in_time(d)


if __name__ == "__main__":
    main()
