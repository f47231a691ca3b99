"""/v1/responses as a stream, and what stands in the history after a break."""

import os
import sqlite3
import threading
import time
import unittest

from harness import Scripted, main
from responses import SCRIPT, STREAM, Case, text_of


class Streams(Case):
    def stream(self, input, **more):
        with self.d.stream(
            "/v1/responses", {"input": input, "temperature": 0, "stream": True, **more}
        ) as s:
            self.assertEqual(s.status, 200)
            self.assertEqual(s.headers["Content-Type"].split(";")[0], "text/event-stream")
            events = list(s)
        self.assertFalse(s.is_done, "a Responses stream has no [DONE]")
        self.assertEqual(s.names, [e["type"] for e in events])
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        return events

    def test_the_order_is_openais(self):
        events = self.stream("capital?")
        types = [e["type"] for e in events]
        self.assertEqual(types, STREAM[:4] + [STREAM[4]] * 3 + STREAM[5:] + ["response.completed"])
        created, progress, item, part = events[:4]
        self.assertEqual(
            (
                created["response"]["status"],
                created["response"]["output"],
                created["response"]["usage"],
            ),
            ("in_progress", [], None),
        )
        self.assertIn("receipt", progress["response"]["hearth"])
        self.assertEqual(
            (item["output_index"], item["item"]["status"], item["item"]["content"]),
            (0, "in_progress", []),
        )
        self.assertEqual(
            part["part"], {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        )
        self.assertEqual([e["delta"] for e in events[4:7]], ["To", "ky", "o"])
        id = item["item"]["id"]
        self.assertTrue(
            all(
                e["item_id"] == id and e["content_index"] == 0 and e["output_index"] == 0
                for e in events[3:9]
            )
        )
        done, part_done, item_done, last = events[7:]
        self.assertEqual(
            (done["text"], part_done["part"]["text"], item_done["item"]["status"]),
            ("Tokyo", "Tokyo", "completed"),
        )
        self.assertEqual(text_of(last["response"]), "Tokyo")
        self.assertEqual(last["response"]["output"][0]["id"], id)
        self.assertIn("cache", last["response"]["hearth"])
        self.assertIn("timings", last["response"]["hearth"])
        self.assertEqual(self.d.get("/v1/responses/" + last["response"]["id"])[1], last["response"])

    def test_whole_and_stream_say_the_same(self):
        for text in ["llama", "split", "capital"]:
            events = self.stream(text)
            whole = self.respond(text)
            deltas = [e["delta"] for e in events if e["type"] == STREAM[4]]
            self.assertEqual("".join(deltas), text_of(whole))

    def test_a_limit_ends_with_incomplete(self):
        last = self.stream("capital?", max_output_tokens=1)[-1]
        self.assertEqual(
            (last["type"], last["response"]["incomplete_details"]),
            ("response.incomplete", {"reason": "max_output_tokens"}),
        )

    def test_a_failure_ends_with_failed(self):
        c = self.conversation()
        for text in ["nan", "nomem"]:
            events = self.stream(text, conversation=c)
            last = events[-1]
            self.assertEqual(
                (last["type"], last["response"]["status"]), ("response.failed", "failed")
            )
            self.assertTrue(last["response"]["error"]["message"])
            self.assertTrue(last["response"]["error"]["code"])
            said = "".join(e["delta"] for e in events if e["type"] == STREAM[4])
            self.assertEqual(text_of(last["response"]), said)
        _, listed = self.d.get(f"/v1/conversations/{c}/items?order=asc")
        self.assertEqual(
            [i["hearth"]["status"] for i in listed["data"]],
            ["stored", "failed", "stored", "failed"],
        )
        self.assertEqual(
            self.respond("capital", conversation=c)["status"], "completed"
        )  # B36: the conversation goes on

    def test_an_error_before_the_first_event_is_a_plain_reply(self):
        status, reply = self.d.post("/v1/responses", {"input": "z" * 2000, "stream": True})
        self.assertEqual((status, reply["error"]["code"]), (400, "context_length_exceeded"))

    def test_a_client_that_leaves_interrupts_its_answer(self):  # B66
        c = self.conversation()
        s = self.d.stream("/v1/responses", {"input": "long", "conversation": c, "stream": True})
        said = ""
        for e in s:
            said += e.get("delta", "")
            if len(said) > 50:
                break
        s.close()
        self.d.until_idle()
        _, listed = self.d.get(f"/v1/conversations/{c}/items?order=asc")
        question, answer = listed["data"]
        self.assertEqual(
            (answer["status"], answer["hearth"]["status"], answer["hearth"]["finish"]),
            ("incomplete", "interrupted", "canceled"),
        )
        self.assertTrue(answer["content"][0]["text"].startswith(said))
        self.assertEqual(text_of(self.respond("capital?", conversation=c)), "Tokyo")
        self.assertEqual(len(self.items(c)), 4)


class History(unittest.TestCase):
    def test_a_restart_keeps_all_and_marks_the_broken_answer(self):
        with Scripted({**SCRIPT, "pace_us": 2000}) as d:
            d.is_kept = True
            _, c = d.post("/v1/conversations", {})
            _, a = d.post("/v1/responses", {"input": "capital?", "conversation": c["id"]})
            s = d.stream(
                "/v1/responses", {"input": "long", "conversation": c["id"], "stream": True}
            )
            for e in s:
                if e["type"] == "response.output_text.delta":
                    break
            d.kill()
            s.close()
            d.start()
            status, again = d.get("/v1/responses/" + a["id"])
            self.assertEqual((status, again), (200, a))
            _, listed = d.get(f"/v1/conversations/{c['id']}/items?order=asc")
            self.assertEqual(
                [(i["role"], i["hearth"]["status"]) for i in listed["data"]],
                [
                    ("user", "stored"),
                    ("assistant", "complete"),
                    ("user", "stored"),
                    ("assistant", "interrupted"),
                ],
            )
            status, r = d.post("/v1/responses", {"input": "capital?", "conversation": c["id"]})
            self.assertEqual((status, text_of(r)), (200, "Tokyo"))
            d.is_kept = False

    def test_a_foreign_transaction_of_three_seconds_costs_time_only(self):  # B65
        with Scripted(SCRIPT) as d:
            _, c = d.post("/v1/conversations", {})
            db = sqlite3.connect(
                os.path.join(d.folder, "state", "history.db"), isolation_level=None
            )
            db.execute("BEGIN IMMEDIATE")
            results = []
            t = threading.Thread(
                target=lambda: results.append(
                    d.post("/v1/responses", {"input": "capital?", "conversation": c["id"]})
                )
            )
            t.start()
            time.sleep(3)  # the length of the hold, which is what is tested
            db.execute("COMMIT")
            t.join()
            self.assertEqual((results[0][0], text_of(results[0][1])), (200, "Tokyo"))
            self.assertEqual(db.execute("SELECT count(*) FROM message").fetchone()[0], 2)

    def test_a_longer_one_is_a_503_and_nothing_stored(self):
        with Scripted(SCRIPT) as d:
            _, c = d.post("/v1/conversations", {})
            db = sqlite3.connect(
                os.path.join(d.folder, "state", "history.db"), isolation_level=None
            )
            db.execute("BEGIN IMMEDIATE")
            status, reply, headers = d.request(
                "POST", "/v1/responses", {"input": "capital?", "conversation": c["id"]}
            )
            self.assertEqual(status, 503, reply)
            self.assertTrue(headers["Retry-After"])
            self.assertEqual(d.get("/health")[0], 200)
            db.execute("ROLLBACK")
            self.assertEqual(db.execute("SELECT count(*) FROM message").fetchone()[0], 0)
            status, reply = d.post("/v1/responses", {"input": "capital?", "conversation": c["id"]})
            self.assertEqual((status, text_of(reply)), (200, "Tokyo"))


if __name__ == "__main__":
    main()
