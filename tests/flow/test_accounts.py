"""What a turn cost and what the cache was worth: the reason and the message of every kind of miss,
sums that outlive what they are of, and one truth in replies, SQLite, /metrics and hearth stats.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import unittest

from harness import BUILD, Scripted, assistant, cached, content, main, system, user

SCRIPT = {
    "chat_template": "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "rules": [
        {"when": "q0", "pieces": ["zero", " and"] * 20},
        {"when": "q1", "pieces": ["one", " and"] * 20},
        {"when": "q2", "pieces": ["two", " and"] * 20},
        {"when": "nan", "pieces": ["a", "b"], "all_nan_at": 1},
        {"when": "forever", "pieces": ["w "], "then": "forever"},
    ],
    "default": {"pieces": ["fine", ".", " And", " so", " on"] * 10},
}
SUMS = ("turns", "prompt_tokens", "completion_tokens", "ram", "disk", "shared", "computed")


def words(n, first):
    return " ".join(f"w{first + i}" for i in range(n))


def miss(reply):
    return reply["hearth"]["cache"]["miss"]


def reason(reply):
    m = miss(reply)
    return m and m["reason"]


class Case(unittest.TestCase):
    flags = ()

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hearth-accounts-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def daemon(self, *flags):
        return Scripted(SCRIPT, *flags, folder=self.folder)

    def new(self, d):
        return d.post("/v1/conversations", {})[1]["id"]

    def respond(self, d, **body):
        status, reply = d.post("/v1/responses", {"temperature": 0, **body})
        self.assertEqual(status, 200, reply)
        c = reply["hearth"]["cache"]
        self.assertEqual(c["ram"] + c["disk"], c["tokens"])
        self.assertEqual(c["tokens"] + c["computed"], reply["usage"]["input_tokens"])
        self.assertLessEqual(c["shared"], c["tokens"])
        return reply

    def savings(self, d, c, query=""):
        status, reply = d.get(f"/v1/hearth/conversations/{c}/savings{query}")
        self.assertEqual(status, 200, reply)
        return reply

    def stats(self, d):
        status, reply = d.get("/v1/hearth/stats")
        self.assertEqual(status, 200, reply)
        return reply

    def metrics(self, d):
        text = d.get("/metrics")[1].decode()
        return {
            m[1]: float(m[2]) for m in re.finditer(r"^(hearth_\S+) ([0-9.]+)$", text, re.MULTILINE)
        }

    def query(self, sql, *args):
        db = sqlite3.connect(f"file:{self.folder}/state/history.db?mode=ro", uri=True)
        try:
            return db.execute(sql, args).fetchall()
        finally:
            db.close()


class Reasons(Case):
    """Of stateless chats."""

    def test_the_first_of_its_kind_is_new_and_the_next_is_no_miss(self):
        with self.daemon() as d:
            m = [system("S " + words(40, 0)), user("one " + words(40, 100))]
            self.assertEqual(miss(d.chat(m)), {"reason": "new", "at_message": 0})
            again = d.chat(m)
            self.assertIsNone(miss(again))
            self.assertEqual(cached(again), again["usage"]["prompt_tokens"] - 1)

    def test_a_first_turn_with_a_shared_system_prompt_is_no_miss(self):
        with self.daemon() as d:
            s = system("S " + words(60, 0))
            d.chat([s, user("one " + words(40, 100))])
            b = d.chat([s, user("two " + words(40, 200))])
            self.assertIsNone(miss(b))
            c = b["hearth"]["cache"]
            self.assertGreaterEqual(c["shared"], 100)
            self.assertEqual(c["shared"], c["tokens"])

    def test_off_is_said_without_a_message(self):
        with self.daemon() as d:
            m = [user("one " + words(40, 100))]
            d.chat(m)
            r = d.chat(m, hearth={"cache": False})
            self.assertEqual(miss(r), {"reason": "off", "at_message": None})

    def talk(self, d, n=3):
        m = [system("S " + words(40, 0))]
        for i in range(n):
            m.append(user(f"question {i} " + words(40, 1000 * i + 100)))
            m.append(assistant(d.say(m)))
        return m

    def test_an_edited_message_is_named(self):
        with self.daemon() as d:
            m = self.talk(d)
            self.assertIsNone(miss(d.chat(m + [user("and?")])))
            for i in range(len(m)):
                edited = list(m)
                edited[i] = {**m[i], "content": "changed " + words(40, 9000 + 100 * i)}
                r = d.chat(edited + [user(f"and {i}?")])
                self.assertEqual(miss(r), {"reason": "changed", "at_message": i}, m[i]["role"])

    def test_dropped_messages_are_a_change_where_they_were(self):
        with self.daemon() as d:
            m = self.talk(d)
            r = d.chat([m[0]] + m[3:] + [user("and?")])
            self.assertEqual(miss(r), {"reason": "changed", "at_message": 1})

    def test_a_regenerated_answer_is_no_miss(self):
        with self.daemon() as d:
            m = self.talk(d, 2)
            again = d.chat(m[:-1])
            self.assertIsNone(miss(again))
            self.assertIsNone(miss(d.chat(m[:-1] + [assistant(content(again)), user("and?")])))

    def test_words_that_nobody_read_are_new(self):
        with self.daemon() as d:
            self.talk(d)
            r = d.chat(
                [user("other " + words(60, 7000)), assistant(words(60, 8000)), user("and?")]
            )
            self.assertEqual(miss(r), {"reason": "new", "at_message": 0})

    def test_what_was_read_and_is_gone_is_evicted_also_after_a_restart(self):
        with self.daemon("--disk", "0") as d:
            m = self.talk(d)
        with self.daemon("--disk", "0") as d:
            r = d.chat(m + [user("and?")])
            self.assertEqual(miss(r), {"reason": "evicted", "at_message": 0})

    def test_another_owner_or_model_is_told(self):
        with self.daemon() as d:
            m = self.talk(d)
        with open(os.path.join(self.folder, "script.json")) as f:
            text = f.read()
        other = json.loads(text.replace('"default"', '"vocab": ["entirely new"], "default"', 1))
        with Scripted(other, folder=self.folder) as d:
            r = d.chat(m + [user("and?")])
            self.assertEqual(miss(r), {"reason": "model", "at_message": 0})


class Stored(Case):
    """Of conversations and responses: the message has its id, too."""

    def test_changed_instructions_are_message_0(self):
        with self.daemon() as d:
            c = self.new(d)
            ask = dict(conversation=c, input="one " + words(40, 100))
            self.respond(d, instructions="I " + words(30, 0), **ask)
            ask["input"] = "two"
            r = self.respond(d, instructions="J " + words(30, 50), **ask)
            self.assertEqual(miss(r), {"reason": "changed", "at_message": 0})

    def test_a_deleted_message_is_where_the_change_is(self):
        with self.daemon() as d:
            c = self.new(d)
            for i in range(3):
                self.respond(d, conversation=c, input=f"q{i} " + words(40, 1000 * i))
            items = d.get(f"/v1/conversations/{c}/items?order=asc")[1]["data"]
            d.request("DELETE", f"/v1/conversations/{c}/items/{items[2]['id']}")
            r = self.respond(d, conversation=c, input="and?")
            self.assertEqual(
                miss(r), {"reason": "changed", "at_message": 2, "message": items[3]["id"]}
            )
        with self.daemon() as d:  # the window of the last turn is known after a restart, too
            d.request("DELETE", f"/v1/conversations/{c}/items/{items[1]['id']}")
            r = self.respond(d, conversation=c, input="and now?")
            self.assertEqual(
                miss(r), {"reason": "changed", "at_message": 1, "message": items[3]["id"]}
            )

    def test_items_that_nobody_read_are_new(self):
        with self.daemon() as d:
            c = self.new(d)
            self.respond(d, conversation=c, input="one " + words(40, 0))
            added = d.post(
                f"/v1/conversations/{c}/items",
                {
                    "items": [
                        {"role": "user", "content": words(40, 500)},
                        {"role": "assistant", "content": words(40, 600)},
                    ]
                },
            )[1]["data"]
            r = self.respond(d, conversation=c, input="and?")
            self.assertEqual(
                miss(r), {"reason": "new", "at_message": 2, "message": added[0]["id"]}
            )

    def test_a_branch_of_an_edit_is_no_miss(self):
        with self.daemon() as d:
            a = self.respond(d, input="one " + words(40, 0))
            b = self.respond(d, input="two " + words(40, 100), previous_response_id=a["id"])
            c = self.respond(d, input="other " + words(40, 200), previous_response_id=a["id"])
            self.assertEqual([reason(x) for x in (b, c)], [None, None])

    def test_disk_after_a_restart_and_evicted_without(self):
        with self.daemon() as d:
            c = self.new(d)
            self.respond(d, conversation=c, input="one " + words(80, 0))
        with self.daemon() as d:
            r = self.respond(d, conversation=c, input="two " + words(20, 300))
            self.assertIsNone(miss(r))
            self.assertEqual(r["hearth"]["cache"]["disk"], r["hearth"]["cache"]["tokens"])
            self.assertGreater(r["hearth"]["cache"]["saved_ms"], 0)
            self.assertEqual(r["hearth"]["cache"]["shared"], 0)
        shutil.rmtree(os.path.join(self.folder, "cache"))
        with self.daemon() as d:
            first = d.get(f"/v1/conversations/{c}/items?order=asc")[1]["data"][0]["id"]
            r = self.respond(d, conversation=c, input="three")
            self.assertEqual(miss(r), {"reason": "evicted", "at_message": 0, "message": first})

    def test_two_conversations_share_a_system_prompt(self):
        with self.daemon() as d:
            replies = []
            for i in range(2):
                c = self.new(d)
                replies.append(
                    self.respond(
                        d,
                        conversation=c,
                        instructions="S " + words(60, 0),
                        input=f"{i} " + words(40, 1000 * i),
                    )
                )
            self.assertEqual([reason(r) for r in replies], ["new", None])
            shared = replies[1]["hearth"]["cache"]["shared"]
            self.assertGreater(shared, 60)
            self.assertEqual(self.savings(d, c)["savings"]["shared"], shared)


class Sums(Case):
    def equal(self, d, before, replies, more=0):
        """The three places, for these replies and `more` turns that had none."""
        want = {k: 0 for k in SUMS}
        misses = {}
        for r in replies:
            c, u = r["hearth"]["cache"], r["usage"]
            want["turns"] += 1
            want["prompt_tokens"] += u.get("prompt_tokens", u.get("input_tokens"))
            want["completion_tokens"] += u.get("completion_tokens", u.get("output_tokens"))
            for k in ("ram", "disk", "shared", "computed"):
                want[k] += c[k]
            if c["miss"]:
                misses[c["miss"]["reason"]] = misses.get(c["miss"]["reason"], 0) + 1
        total = self.stats(d)["total"]
        self.assertEqual({k: total[k] for k in SUMS}, want)
        self.assertEqual(total["misses"], misses)
        now = self.metrics(d)
        delta = {k: v - before.get(k, 0) for k, v in now.items()}
        self.assertEqual(delta["hearth_prompt_tokens_total"], want["prompt_tokens"])
        self.assertEqual(delta["hearth_cached_tokens_total"], want["ram"] + want["disk"])
        for k in ("ram", "disk"):
            self.assertEqual(
                delta[f'hearth_cached_tokens_by_source_total{{source="{k}"}}'], want[k]
            )
        self.assertEqual(delta["hearth_shared_tokens_total"], want["shared"])
        self.assertEqual(delta["hearth_computed_tokens_total"], want["computed"])
        self.assertEqual(delta["hearth_generated_tokens_total"], want["completion_tokens"])
        for k in ("off", "new", "evicted", "changed", "model"):
            self.assertEqual(
                delta[f'hearth_cache_misses_total{{reason="{k}"}}'], misses.get(k, 0), k
            )
        self.assertAlmostEqual(
            delta["hearth_saved_seconds_total"],
            sum(r["hearth"]["cache"]["saved_ms"] for r in replies) / 1e3,
            places=4,
        )
        return want

    def test_reply_sqlite_and_metrics_say_the_same(self):
        with self.daemon() as d:
            before = self.metrics(d)
            c = self.new(d)
            replies = [
                self.respond(d, conversation=c, input="one " + words(50, 0)),
                self.respond(d, conversation=c, input="two"),
                self.respond(d, conversation=c, input="three", instructions="I " + words(30, 0)),
            ]
            own = list(replies)
            m = [user("stateless " + words(40, 0))]
            replies.append(d.chat(m))
            replies.append(d.chat(m, hearth={"cache": False}))
            with d.chat_stream(m, stream_options={"include_usage": True}) as s:
                events = list(s)
            replies.append({"hearth": events[-2]["hearth"], "usage": events[-1]["usage"]})
            self.assertNotIn("cache", events[0]["hearth"])
            self.equal(d, before, replies)
            rows = self.query(
                "SELECT m.id, t.cached_ram, t.cached_disk, t.cached_shared, t.computed_tokens,"
                " t.saved_us, t.miss_reason, t.miss_at FROM turn t"
                " JOIN message m ON m.row = t.answer ORDER BY 1"
            )
            self.assertEqual(len(rows), 3)
            for r in own:
                x, k = r["hearth"]["cache"], r["output"][0]["id"]
                row = next(row for row in rows if row[0] == k)
                self.assertEqual(
                    row[1:5], (x["ram"], x["disk"], x["shared"], x["computed"]), (row, x)
                )
                self.assertEqual(row[5], round(x["saved_ms"] * 1000))
                self.assertEqual(row[6], reason(r))
                self.assertEqual(row[7], miss(r) and miss(r)["at_message"])
            page = self.savings(d, c, "?order=asc")["turns"]["data"]
            self.assertEqual([t["cache"] for t in page], [r["hearth"]["cache"] for r in own])

    def test_sums_outlive_messages_conversations_and_restarts(self):
        with self.daemon() as d:
            c = self.new(d)
            for i in range(3):
                self.respond(d, conversation=c, input=f"q{i} " + words(40, 1000 * i))
            d.chat([user("stateless")])
            sums, total = self.savings(d, c)["savings"], self.stats(d)["total"]
            self.assertEqual((sums["turns"], total["turns"]), (3, 4))
            items = d.get(f"/v1/conversations/{c}/items?order=asc")[1]["data"]
            d.request("DELETE", f"/v1/conversations/{c}/items/{items[1]['id']}")
            after = self.savings(d, c)
            self.assertEqual(after["savings"], sums)
            self.assertEqual(len(after["turns"]["data"]), 2)
            self.assertEqual(self.stats(d)["conversations"][0]["id"], c)
            self.assertEqual(d.request("DELETE", f"/v1/conversations/{c}")[0], 200)
            self.assertEqual(self.stats(d)["total"], total)
            self.assertEqual(self.stats(d)["since_start"]["turns"], 4)
            self.assertEqual(self.stats(d)["conversations"], [])
            self.assertEqual(d.get(f"/v1/hearth/conversations/{c}/savings")[0], 404)
        self.assertEqual(self.query("SELECT count(*) FROM conversation_savings"), [(0,)])
        self.assertEqual(self.query("SELECT count(*) FROM conversation_miss"), [(0,)])
        with self.daemon() as d:
            self.assertEqual(self.stats(d)["total"], total)
            self.assertEqual(self.stats(d)["since_start"]["turns"], 0)

    def test_failed_turns_are_told_and_counted(self):
        with self.daemon() as d:
            before = self.metrics(d)
            m = [user("nan " + words(40, 0))]
            status, whole = d.post("/v1/chat/completions", {"messages": m, "temperature": 0})
            self.assertEqual((status, whole["error"]["code"]), (500, "numeric_error"))
            with d.chat_stream(m) as s:
                last = list(s)[-1]
            self.assertEqual(last["error"]["code"], "numeric_error")
            body = {"input": "nan " + words(40, 500), "temperature": 0, "stream": True}
            with d.stream("/v1/responses", body) as s:
                failed = list(s)[-1]
            self.assertEqual(failed["type"], "response.failed")
            stored = d.get(f"/v1/responses/{failed['response']['id']}")[1]
            self.assertEqual(stored["hearth"], failed["response"]["hearth"])
            caches = [x["hearth"]["cache"] for x in (whole, last, failed["response"])]
            total = self.stats(d)["total"]
            self.assertEqual(total["turns"], 3)
            for k in ("ram", "disk", "shared", "computed"):
                self.assertEqual(total[k], sum(c[k] for c in caches), k)
            self.assertGreater(caches[0]["computed"], 40)
            self.assertEqual(total["misses"], {"new": sum(1 for c in caches if c["miss"])})
            now = self.metrics(d)
            self.assertEqual(
                now["hearth_computed_tokens_total"] - before["hearth_computed_tokens_total"],
                total["computed"],
            )

    def test_a_turn_whose_client_left_is_counted_as_far_as_it_came(self):
        with Scripted({**SCRIPT, "pace_us": 3000, "prefill_us_per_token": 200},
                      folder=self.folder) as d:
            c = self.new(d)
            body = {"conversation": c, "input": "forever " + words(40, 0), "stream": True}
            with d.stream("/v1/responses", body) as s:
                next(e for e in s if e["type"] == "response.output_text.delta")
            d.until(lambda: self.stats(d)["total"]["turns"] == 1, "the turn has ended")
            turn = self.savings(d, c)["turns"]["data"][0]
            self.assertEqual(turn["finish"], "canceled")
            cache = turn["cache"]
            self.assertEqual(cache["tokens"] + cache["computed"], turn["prompt_tokens"])
            # And one that leaves while its prompt is read.
            body["input"] = "forever " + words(800, 5000)
            with d.stream("/v1/responses", body) as s:
                next(iter(s))
                d.until(lambda: d.status()["turns"]["running"] == 1, "it runs")
            d.until(lambda: self.stats(d)["total"]["turns"] == 2, "the turn has ended")
            turn = self.savings(d, c)["turns"]["data"][0]
            cache = turn["cache"]
            self.assertEqual((turn["finish"], turn["completion_tokens"]), ("canceled", 0))
            self.assertLess(cache["tokens"] + cache["computed"], turn["prompt_tokens"])
            total = self.stats(d)["total"]
            now = self.metrics(d)
            self.assertEqual(now["hearth_computed_tokens_total"], total["computed"])
            self.assertEqual(now["hearth_cached_tokens_total"], total["cached_tokens"])
            self.assertEqual(now["hearth_prompt_tokens_total"], total["prompt_tokens"])

    def test_turns_come_in_pages(self):
        with self.daemon() as d:
            c = self.new(d)
            for i in range(5):
                self.respond(d, conversation=c, input=f"q{i}")
            page = self.savings(d, c, "?limit=2")["turns"]
            seen = [t["id"] for t in page["data"]]
            while page["has_more"]:
                page = self.savings(d, c, f"?limit=2&after={page['last_id']}")["turns"]
                seen += [t["id"] for t in page["data"]]
            self.assertEqual(len(set(seen)), 5)
            up = self.savings(d, c, "?order=asc")["turns"]["data"]
            self.assertEqual([t["id"] for t in up], seen[::-1])
            self.assertEqual(
                d.get(f"/v1/hearth/conversations/{c}/savings?after=msg_0")[0], 404
            )
            self.assertEqual(d.get(f"/v1/hearth/conversations/{c}/savings?limit=0")[0], 400)


if __name__ == "__main__":
    main()
