"""hearth replay: against the daemon over the scripted engine, and against a plain OpenAI server."""

import csv
import http.server
import io
import json
import os
import signal
import threading

from hearth import Hearth
from harness import SOURCE, Scripted, main
from replays import LONG, SCRIPT, Here, openai


def event(data):
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(text=None, finish=None, **more):
    d = {} if text is None else {"content": text}
    return event({"choices": [{"index": 0, "delta": {**d, **more}, "finish_reason": finish}]})


def usage(prompt, written, **more):
    numbers = {"prompt_tokens": prompt, "completion_tokens": written, **more}
    return event({"choices": [], "usage": numbers})


DONE = event(b"[DONE]")


class Plain:
    """A server that knows nothing of hearth: answer(n-th request, its body) gives the bytes of the
    stream, or a status."""

    def __init__(self, answer):
        self.requests = []
        plain = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                plain.requests.append((self.path, body))
                said = answer(len(plain.requests), body)
                is_error = isinstance(said, int)
                data = json.dumps({"error": {"message": "too long"}}).encode() if is_error else said
                self.send_response(said if is_error else 200)
                kind = "application/json" if is_error else "text/event-stream"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def prompts(self):
        """Of each request: 'role:text' of its messages."""
        return [
            [f"{m['role'][0]}:{m['content']}" for m in body["messages"]]
            for _, body in self.requests
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class AgainstOurs(Here):
    def setUp(self):
        super().setUp()
        self.d = Scripted(SCRIPT, folder=self.folder)

    def tearDown(self):
        self.d.stop()
        super().tearDown()

    def test_the_table(self):
        path = self.file(openai(LONG, "a", LONG), {"turns": [LONG, "x"]})
        r = self.h.run("replay", path)
        self.assertEqual((r.code, r.err), (0, ""), r)
        lines = r.out.splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:]], ["turn", "1", "2", "all"])
        self.assertEqual([line.split()[1] for line in lines[2:]], ["2", "2", "4"])
        self.assertEqual(len({len(line) for line in lines}), 1, r.out)
        self.assertLessEqual(len(lines[0]), 110)
        self.assertNotIn(" - ", r.out)  # our daemon tells everything

    def test_the_accounts(self):
        path = self.file(openai(LONG, "a", LONG, "b", LONG))
        j = self.play(path)
        self.assertEqual((j["object"], j["whole"], j["refused"]), ("hearth.replay", True, 0))
        first, *later = j["turns"]
        self.assertEqual(first["cached_tokens"], 0)
        for before, t in zip(j["turns"], later):
            self.assertGreaterEqual(t["cached_tokens"], before["prompt_tokens"] - 1)
            self.assertEqual(t["ram_tokens"] + t["disk_tokens"], t["cached_tokens"])
            self.assertEqual(t["shared_tokens"], 0)
        for t in j["turns"]:
            self.assertEqual(t["cached_tokens"] + t["computed_tokens"], t["prompt_tokens"])
            self.assertEqual(t["finish_reason"], "stop")
            self.assertEqual(t["answer_hash"], first["answer_hash"])
            self.assertGreater(t["ttft_ms"], 0)
            self.assertGreaterEqual(t["total_ms"], t["ttft_ms"])
        for key in ("prompt_tokens", "cached_tokens", "computed_tokens", "written_tokens"):
            self.assertEqual(j["total"][key], sum(t[key] for t in j["turns"]), key)
        self.assertEqual([row["n"] for row in j["by_turn"]], [1, 1, 1])
        self.assertEqual([row["turn"] for row in j["by_turn"]], [1, 2, 3])
        rate = j["total"]["cached_tokens"] / j["total"]["prompt_tokens"]
        self.assertAlmostEqual(j["total"]["hit_rate"], rate)

    def test_no_cache_is_the_baseline(self):
        path = self.file(openai(LONG, "a", LONG))
        self.play(path)
        j = self.play("--no-cache", path)
        self.assertEqual(j["total"]["cached_tokens"], 0)
        self.assertEqual(j["total"]["computed_tokens"], j["total"]["prompt_tokens"])
        self.assertFalse(j["options"]["cache"])

    def test_a_shared_beginning_is_told(self):
        path = self.file(openai("one", system=LONG), openai("two", system=LONG))
        self.assertGreater(self.play(path)["turns"][1]["shared_tokens"], 32)

    def test_nothing_is_stored(self):
        self.play(self.file(openai("one")))
        self.assertEqual(self.d.status()["history"]["conversations"], 0)

    def test_a_conversation_that_is_too_long_ends_and_the_others_go_on(self):
        path = self.file(
            openai("x"), openai("one", "a", LONG * 60, "b", "never"), openai("y", "a", "z")
        )
        r = self.h.run("replay", "--interleave", "2", path)
        self.assertEqual(r.code, 1)
        self.assertIn(f"turn 2 of {path}:2, which ends here", r.err)
        self.assertIn("1 conversation was refused", r.out)
        j = self.play("--interleave", "2", "--csv", self.path("o.csv"), path, code=1)
        self.assertEqual((j["refused"], j["whole"]), (1, False))
        self.assertEqual(self.order(j), [(1, 1), (2, 1), (3, 1), (3, 2)])

    def test_an_empty_answer_has_no_first_token(self):
        j = self.play(self.file(openai("silence", "a", "hi")))
        self.assertIsNone(j["turns"][0]["ttft_ms"])
        self.assertEqual(len(j["turns"]), 2)

    def test_max_tokens(self):
        t = self.play("--max-tokens", "7", self.file(openai("endless")))["turns"][0]
        self.assertEqual((t["written_tokens"], t["finish_reason"]), (7, "length"))

    def test_our_own_export_is_played(self):
        self.assertEqual(self.h.run("chat", stdin="one\ntwo\n").code, 0)
        r = self.h.run("export", "--all", "--output", self.path("export.jsonl"))
        self.assertEqual(r.code, 0, r)
        j = self.play(self.path("export.jsonl"))
        self.assertEqual(self.order(j), [(1, 1), (1, 2)])
        self.assertTrue(j["conversations"][0]["name"])

    def test_ctrl_c_reports_what_was_played(self):
        path = self.file(openai("hi"), openai("endless"))
        p = self.h.start("replay", "--max-tokens", "1000000", "--json", "-", path)
        self.d.until(lambda: self.d.status()["turns"]["started"] == 2, "the second is answered")
        p.send_signal(signal.SIGINT)
        out, err = p.communicate()
        self.assertEqual((p.returncode, err), (130, b""))
        j = json.loads(out)
        self.assertEqual((self.order(j), j["whole"]), ([(1, 1)], False))
        self.d.until_idle()

    def test_a_terminal_sees_progress_and_then_the_table(self):
        p = self.h.person("replay", self.file(openai("a", "b", "c")))
        p.expect("░ 0 of 2 turns +0 %".encode())
        p.expect("█(?:░)+ 1 of 2 turns, last [0-9]+ ms +50 %".encode())
        p.expect(rb"\r\033\[K *tokens")
        p.expect(rb"all +2 ")
        self.assertEqual(p.end(), 0)

    def test_the_samples_are_played(self):
        folder = os.path.join(SOURCE, "docs", "samples")
        files = [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if "jsonl" in f]
        j = self.play("--turns", "1", *files)
        self.assertGreaterEqual(len(j["turns"]), 6)


class AgainstAnother(Here):
    @staticmethod
    def say(n, body):
        return delta("", role="assistant") + delta(f"own {n}") + delta(None, "stop") + DONE

    def run_plain(self, answer, *words, **more):
        with Plain(answer) as server:
            j = self.play(*words, where=["--url", server.url], **more)
            self.prompts, self.bodies = server.prompts(), [b for _, b in server.requests]
            self.assertTrue(all(p == "/v1/chat/completions" for p, _ in server.requests))
        return j

    def test_the_models_own_answers_go_on(self):
        self.run_plain(self.say, self.file(openai("a", "A", "b", "B", "c", system="s")))
        self.assertEqual(
            self.prompts,
            [
                ["s:s", "u:a"],
                ["s:s", "u:a", "a:own 1", "u:b"],
                ["s:s", "u:a", "a:own 1", "u:b", "a:own 2", "u:c"],
            ],
        )

    def test_the_teachers_answers_go_on(self):
        self.run_plain(
            self.say, "--teacher", self.file(openai("a", "A", "b"), {"turns": ["x", "y"]})
        )
        self.assertEqual(
            self.prompts,
            [["u:a"], ["u:a", "a:A", "u:b"], ["u:x"], ["u:x", "a:own 3", "u:y"]],
        )

    def test_only_what_is_openais_is_sent(self):
        self.run_plain(self.say, "--max-tokens", "9", "--model", "m", self.file(openai("a")))
        self.assertEqual(
            self.bodies,
            [
                {
                    "model": "m",
                    "messages": [{"role": "user", "content": "a"}],
                    "max_tokens": 9,
                    "temperature": 0,
                    "stream": True,
                    "stream_options": {"include_usage": True},
                }
            ],
        )
        self.run_plain(self.say, "--no-cache", self.file(openai("a")))
        self.assertEqual(self.bodies[0]["hearth"], {"cache": False})
        self.run_plain(self.say, "--context", "auto", self.file(openai("a")))
        self.assertEqual(self.bodies[0]["hearth"], {"context": "auto"})

    def test_conversations_take_turns(self):
        path = self.file(
            openai("a", "-", "a", "-", "a"), openai("b"), openai("c", "-", "c"), openai("d")
        )
        j = self.run_plain(self.say, "--interleave", "2", path)
        order = [(1, 1), (2, 1), (1, 2), (3, 1), (1, 3), (3, 2), (4, 1)]
        self.assertEqual(self.order(j), order)
        self.assertEqual(self.order(self.run_plain(self.say, path))[:3], [(1, 1), (1, 2), (1, 3)])
        j = self.run_plain(self.say, "--interleave", "99", path)
        self.assertEqual(
            self.order(j), [(1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (3, 2), (1, 3)]
        )

    def test_limits(self):
        path = self.file(openai("a", "-", "a", "-", "a"), openai("b", "-", "b"), "no JSON")
        j = self.run_plain(self.say, "--limit", "2", "--turns", "2", path, path)
        self.assertEqual(self.order(j), [(1, 1), (1, 2), (2, 1), (2, 2)])

    def test_stdin(self):
        line = json.dumps(openai("a")) + "\n"
        j = self.run_plain(self.say, "-", stdin="\n" + line)
        self.assertEqual(j["conversations"], [{"from": "stdin:2"}])

    def test_what_a_server_does_not_tell_is_not_made_up(self):
        with Plain(self.say) as server:
            h = Hearth(where=["--url", server.url])
            r = h.run("replay", self.file(openai("a")))
            self.assertEqual(r.code, 0, r)
            row = r.out.splitlines()[-1].split()
            self.assertEqual(row[:9], ["all", "1"] + 7 * ["-"])
            self.assertEqual(row[11:], ["-", "-"])
            r = h.run("replay", "--csv", "-", self.path("in.jsonl"))
            h.close()
        row = next(csv.DictReader(io.StringIO(r.out)))
        empty = {k for k, v in row.items() if v == ""}
        counts = {"prompt", "cached", "ram", "disk", "shared", "computed", "written"}
        self.assertEqual(empty, {k + "_tokens" for k in counts} | {"saved_ms"})
        t = self.run_plain(self.say, self.path("in.jsonl"))["turns"][0]
        self.assertEqual({k for k, v in t.items() if v is None}, empty)

    def test_usages_cached_tokens(self):
        def answer(n, body):
            more = {"prompt_tokens_details": {"cached_tokens": 30}}
            return delta("x") + delta(None, "stop") + usage(100, 2, **more) + DONE

        t = self.run_plain(answer, self.file(openai("a")))["turns"][0]
        self.assertEqual((t["prompt_tokens"], t["cached_tokens"], t["computed_tokens"]),
                         (100, 30, 70))
        self.assertEqual((t["ram_tokens"], t["saved_ms"], t["written_tokens"]), (None, None, 2))

    def test_llama_servers_timings(self):
        def answer(n, body):
            end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
            end["timings"] = {"prompt_n": 25, "cache_n": 75}
            return delta("x") + event(end) + usage(100, 2) + DONE

        t = self.run_plain(answer, self.file(openai("a")))["turns"][0]
        self.assertEqual((t["cached_tokens"], t["computed_tokens"]), (75, 25))

    def test_thinking_aloud_is_a_first_token_but_no_answer(self):
        def answer(n, body):
            return delta(reasoning_content="hm") + delta("A") + delta(None, "stop") + DONE

        j = self.run_plain(answer, self.file(openai("a", "-", "b")))
        self.assertEqual(self.prompts[1], ["u:a", "a:A", "u:b"])
        self.assertIsNotNone(j["turns"][0]["ttft_ms"])

    def test_a_refusal_ends_a_conversation_but_a_failure_everything(self):
        path = self.file(openai("a", "-", "b"), openai("c"))
        for status in (400, 413, 422):
            j = self.run_plain(lambda n, b: status if n == 1 else self.say(n, b), path, code=1)
            self.assertEqual(self.order(j), [(2, 1)])
        for status, code in ((500, 1), (503, 4), (401, 6), (404, 5)):
            j = self.run_plain(lambda n, b: status if n == 2 else self.say(n, b), path, code=code)
            self.assertEqual((self.order(j), j["refused"], j["whole"]), ([(1, 1)], 0, False))

    def test_half_an_answer_is_a_failure(self):
        path = self.file(openai("a"))
        for half in (delta("x"), delta("x") + DONE, b"", event(b"{"),
                     event({"error": {"message": "out of luck"}})):
            j = self.run_plain(lambda n, b: half, path, code=1)
            self.assertEqual(j["turns"], [])
            self.assertIn("error", self.result.out)

    def test_odd_numbers_are_no_numbers(self):
        def answer(n, body):
            odd = {"prompt_tokens_details": {"cached_tokens": "7"}}
            return delta("x") + delta(None, 'a,"\n=1') + usage(-5, 1e300, **odd) + DONE

        path = self.file(openai("a"))
        t = self.run_plain(answer, "--csv", self.path("o.csv"), path)["turns"][0]
        for key in ("prompt_tokens", "cached_tokens", "written_tokens"):
            self.assertIsNone(t[key])
        with open(self.path("o.csv")) as f:
            self.assertEqual(next(csv.DictReader(f))["finish_reason"], "a____1")


class Files(Here):
    def refused(self, pattern, *words):
        """Before anything is sent."""
        with Plain(AgainstAnother.say) as server:
            h = Hearth(where=["--url", server.url])
            r = h.run("replay", *words)
            h.close()
            self.assertEqual((r.code, server.requests, r.out), (1, [], ""), r)
        self.assertRegex(r.err, pattern)

    def test_a_bad_line_is_named_before_anything_is_played(self):
        good = openai("a")
        for bad, why in (
            ("{", r"offset"),
            ("[1]", "one conversation a line"),
            ({"messages": [{"role": "tool", "content": "x"}]}, "'tool' can't be played"),
            ({"conversations": []}, "no message of a user"),
            ({"other": 1}, "neither"),
        ):
            path = self.file(good, "", bad, good)
            self.refused(f"^hearth: {path}:3: .*{why}", path)

    def test_files_that_cannot_be_read(self):
        self.refused("none can't be read: No such file", self.path("none"))
        self.refused("can't be read: Is a directory", self.folder)
        self.refused("no conversation in it", self.file())

    def test_results_are_not_written_over_anything_else(self):
        path = self.file(openai("a"))
        other = self.file("precious", name="other")
        self.refused("holds no results", "--json", other, path)
        self.refused("holds no results", "--csv", path, path)
        self.refused("can't be written: No such file", "--csv", "/nonexistent/x", path)
        with Plain(AgainstAnother.say) as server:
            h = Hearth(where=["--url", server.url])
            for _ in range(2):
                r = h.run(
                    "replay", "--json", self.path("r.json"), "--csv", self.path("r.csv"), path
                )
                self.assertEqual(r.code, 0, r)
                self.assertIn("all", r.out)
            r = h.run("replay", "--json", "/dev/null", path)
            self.assertEqual(r.code, 0, r)
            h.close()
        with open(self.path("r.json")) as f:
            self.assertEqual(len(json.load(f)["turns"]), 1)
        with open(self.path("r.csv")) as f:
            self.assertEqual(len(list(csv.DictReader(f))), 1)

    def test_a_full_disk_is_told(self):
        with Plain(AgainstAnother.say) as server:
            h = Hearth(where=["--url", server.url])
            r = h.run("replay", "--json", "/dev/full", self.file(openai("a")))
            h.close()
        self.assertEqual(r.code, 1)
        self.assertIn("/dev/full can't be written: No space left", r.err)

    def test_usage(self):
        path = self.file(openai("a"))
        for words in (
            [],
            ["--interleave", "0", path],
            ["--interleave", "x", path],
            ["--max-tokens", "0", path],
            ["--limit", "-1", path],
            ["--restart-every", "2", path],
            ["--kill", path],
            ["--daemon", "x", "--kill", path],
            ["--daemon", "x", "--pause", "3", path],
            ["--daemon", "'x", path],
            ["--daemon", "", path],
            ["--json", "-", "--csv", "-", path],
            ["--json"],
        ):
            r = self.h.run("replay", *words)
            self.assertEqual((r.code, r.out), (2, ""), (words, r))
            self.assertTrue(r.err.startswith("hearth: "), r)


if __name__ == "__main__":
    main()
