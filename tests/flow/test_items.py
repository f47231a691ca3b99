"""/v1/conversations and their items: OpenAI's endpoints, our list, limits and refusals."""

import unittest

import history
from harness import Scripted, main, user

SCRIPT = {
    "rules": [{"when": "capital", "pieces": ["To", "ky", "o"]}],
    "default": {"pieces": ["ok"]},
}


class Items(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def make(self, **body):
        status, c = self.d.post("/v1/conversations", body)
        self.assertEqual(status, 200, c)
        return c

    def items(self, id, query=""):
        status, page = self.d.get(f"/v1/conversations/{id}/items{query}")
        self.assertEqual(status, 200, page)
        return page

    def texts(self, page):
        return [i["content"][0]["text"] for i in page["data"]]

    def error(self, status, method, path, body=None):
        got, reply, _ = self.d.request(method, path, body)
        self.assertEqual(got, status, reply)
        return reply["error"]

    def test_create_get_update(self):
        c = self.make(metadata={"topic": "tea"})
        self.assertRegex(c["id"], "^conv_[0-9a-f]{32}$")
        self.assertEqual((c["object"], c["metadata"]), ("conversation", {"topic": "tea"}))
        self.assertIsInstance(c["created_at"], int)
        path = "/v1/conversations/" + c["id"]
        self.assertEqual(self.d.get(path), (200, c))
        status, c = self.d.post(path, {"metadata": {"topic": "coffee", "more": ""}})
        self.assertEqual((status, c["metadata"]), (200, {"topic": "coffee", "more": ""}))
        status, c = self.d.post(path, {"hearth": {"title": "Kitchen"}})
        self.assertEqual((c["hearth"]["title"], c["metadata"]["topic"]), ("Kitchen", "coffee"))
        self.assertEqual(self.error(400, "POST", path, {})["param"], "metadata")
        self.assertEqual(self.error(400, "POST", path, {"metadata": {"a": 1}})["param"], "metadata")

    def test_a_body_is_optional(self):
        for body in [None, "", "{}"]:
            status, c, _ = self.d.request("POST", "/v1/conversations", body)
            self.assertEqual((status, c["metadata"]), (200, {}))
        self.assertEqual(self.error(400, "POST", "/v1/conversations", "[]")["code"], "invalid_json")
        self.assertEqual(self.error(400, "POST", "/v1/conversations", "{")["code"], "invalid_json")

    def test_create_with_items(self):
        c = self.make(
            items=[
                {"role": "system", "content": "S"},
                {"type": "message", "role": "user", "content": "U"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "A"}]},
            ]
        )
        page = self.items(c["id"], "?order=asc")
        self.assertEqual(
            [(i["type"], i["role"], i["status"]) for i in page["data"]],
            [("message", r, "completed") for r in ["system", "user", "assistant"]],
        )
        self.assertEqual(
            [i["content"][0]["type"] for i in page["data"]],
            ["input_text", "input_text", "output_text"],
        )
        self.assertEqual((c["hearth"]["title"], c["hearth"]["n_messages"]), ("U", 3))

    def test_a_wrong_item_makes_no_conversation(self):
        before = self.d.status()["history"]
        self.assertEqual(
            self.error(400, "POST", "/v1/conversations", {"items": [user("a"), {"role": "user"}]})[
                "param"
            ],
            "items[1]",
        )
        self.assertEqual(
            self.error(400, "POST", "/v1/conversations", {"items": [user("a")] * 21})["param"],
            "items",
        )
        self.assertEqual(
            self.error(400, "POST", "/v1/conversations", {"items": "x"})["param"], "items"
        )
        after = self.d.status()["history"]
        self.assertEqual(
            (after["conversations"], after["messages"]),
            (before["conversations"], before["messages"]),
        )

    def test_items_are_added_read_and_deleted(self):
        c = self.make()
        path = f"/v1/conversations/{c['id']}/items"
        status, added = self.d.post(path, {"items": [user(str(i)) for i in range(20)]})
        self.assertEqual(
            (status, added["object"], self.texts(added)), (200, "list", [str(i) for i in range(20)])
        )
        self.assertEqual(
            (added["first_id"], added["last_id"], added["has_more"]),
            (added["data"][0]["id"], added["data"][19]["id"], False),
        )
        item = added["data"][7]
        self.assertEqual(self.d.get(f"{path}/{item['id']}"), (200, item))
        status, left, _ = self.d.request("DELETE", f"{path}/{item['id']}")
        self.assertEqual(
            (status, left["id"], left["object"], left["hearth"]["n_messages"]),
            (200, c["id"], "conversation", 19),
        )
        self.assertEqual(self.error(404, "GET", f"{path}/{item['id']}")["param"], "item_id")
        self.assertEqual(self.error(404, "DELETE", f"{path}/{item['id']}")["param"], "item_id")
        self.assertEqual(
            self.texts(self.items(c["id"], "?order=asc&limit=100")),
            [str(i) for i in range(20) if i != 7],
        )
        self.assertEqual(self.error(400, "POST", path, {"items": []})["param"], "items")
        self.assertEqual(self.error(400, "POST", path, {})["param"], "items")
        other = self.make(items=[user("x")])
        foreign = self.items(other["id"])["data"][0]["id"]
        self.assertEqual(self.error(404, "GET", f"{path}/{foreign}")["param"], "item_id")

    def test_pages_in_both_orders(self):
        c = self.make(items=[user(str(i)) for i in range(10)])
        for order, wanted in [
            ("asc", [str(i) for i in range(10)]),
            ("desc", [str(i) for i in reversed(range(10))]),
        ]:
            for limit in [1, 3, 10, 100]:
                got, after, more = [], "", True
                while more:
                    page = self.items(c["id"], f"?order={order}&limit={limit}{after}")
                    got += self.texts(page)
                    more, after = page["has_more"], "&after=" + page["last_id"]
                self.assertEqual(got, wanted)
        self.assertEqual(len(self.items(self.make(items=[user("x")] * 20)["id"])["data"]), 20)
        empty = self.items(self.make()["id"])
        self.assertEqual((empty["data"], empty["has_more"]), ([], False))
        for bad in [
            "limit=0",
            "limit=101",
            "limit=x",
            "limit=",
            "limit=1.5",
            "limit=99999999999999999999",
            "order=up",
        ]:
            with self.subTest(bad=bad):
                self.assertEqual(
                    self.error(400, "GET", f"/v1/conversations/{c['id']}/items?{bad}")["param"],
                    bad.split("=")[0],
                )
        self.assertEqual(
            self.error(404, "GET", f"/v1/conversations/{c['id']}/items?after=msg_0")["param"],
            "after",
        )

    def test_limits_are_digits_in_range(self):
        c = self.make()["id"]
        for text in ("%2B5", "+5", "%205", "5%20", "", "-1", "0", "101", "1e1", "9" * 30):
            for path in ("/v1/conversations", f"/v1/conversations/{c}/items"):
                e = self.error(400, "GET", f"{path}?limit={text}")
                self.assertEqual(e["param"], "limit", text)
        self.assertEqual(self.d.get("/v1/conversations?limit=05")[0], 200)

    def test_an_answer_s_status_is_a_known_one(self):
        def answer(status):
            return {"role": "assistant", "content": "a", "status": status}

        e = self.error(
            400, "POST", "/v1/conversations", {"items": [user("q"), answer("nonsense")]}
        )
        self.assertEqual(e["param"], "items[1].status")
        self.assertIn("nonsense", e["message"])
        for status, read in (
            ("completed", "completed"),
            (None, "completed"),
            ("incomplete", "incomplete"),
            ("in_progress", "incomplete"),
        ):
            c = self.make(items=[user("q"), answer(status)])["id"]
            self.assertEqual(self.items(c, "?order=asc")["data"][1]["status"], read)

    def test_the_list_goes_by_last_use(self):
        ids = [self.make(metadata={"n": str(i)})["id"] for i in range(4)]
        self.d.post("/v1/responses", {"input": "capital?", "conversation": ids[1]})
        self.d.post("/v1/responses", {"input": "not listed"})
        _, page = self.d.get("/v1/conversations?limit=3")
        self.assertEqual(
            ([c["id"] for c in page["data"]], page["has_more"]), ([ids[1], ids[3], ids[2]], True)
        )
        self.assertEqual(page["data"][0]["hearth"]["title"], "capital?")
        self.assertTrue(page["data"][0]["hearth"]["model"])
        _, page = self.d.get(f"/v1/conversations?limit=1&after={ids[2]}")
        self.assertEqual([c["id"] for c in page["data"]], [ids[0]])

    def test_deleted_is_gone_from_the_files_too(self):
        c = self.make(items=[user("PLUGHXYZZYPLUGH")])
        self.assertTrue(history.holds(self.d, b"PLUGHXYZZYPLUGH"))
        status, gone, _ = self.d.request("DELETE", "/v1/conversations/" + c["id"])
        self.assertEqual(status, 200)
        self.assertEqual(
            gone,
            {
                "id": c["id"],
                "object": "conversation.deleted",
                "deleted": True,
                "hearth": {"messages": 1, "blocks": 0, "kv_bytes": 0, "remains": False},
            },
        )
        self.assertFalse(history.holds(self.d, b"PLUGHXYZZYPLUGH"))
        self.assertEqual(
            self.error(404, "GET", "/v1/conversations/" + c["id"])["type"], "not_found_error"
        )
        self.assertEqual(
            self.error(404, "DELETE", "/v1/conversations/" + c["id"])["param"], "conversation_id"
        )

    def test_text_of_any_kind_comes_back(self):
        texts = [
            "",
            " ",
            "a\nb\t\"\\/",
            "\u007f\u0001",
            "猫🦙\u200b",
            "</s><|im_end|>",
            "x" * 100000,
        ]
        c = self.make(items=[user(t) for t in texts])
        self.assertEqual(self.texts(self.items(c["id"], "?order=asc")), texts)

    def test_methods_that_are_none(self):
        c = self.make()
        for method, path in [
            ("PATCH", f"/v1/conversations/{c['id']}"),
            ("DELETE", "/v1/conversations"),
            ("POST", f"/v1/conversations/{c['id']}/items/x"),
        ]:
            self.assertEqual(self.d.request(method, path, {})[0], 405, (method, path))
        self.assertEqual(self.d.request("GET", "/v1/conversations//items")[0], 404)


class Tokenize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(SCRIPT)

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def tokenize(self, **body):
        status, reply = self.d.post("/tokenize", body)
        self.assertEqual(status, 200, reply)
        return reply

    def test_text_gives_ids(self):
        self.assertEqual(self.tokenize(content="abc"), {"tokens": [97, 98, 99], "count": 3})
        self.assertEqual(self.tokenize(text="abc")["count"], 3)
        self.assertEqual(self.tokenize(prompt="")["tokens"], [])

    def test_text_never_gives_control_tokens(self):  # B24
        self.assertFalse(
            {256, 257, 258}
            & set(self.tokenize(content="<|im_start|>system<|im_end|><|endoftext|>")["tokens"])
        )

    def test_pieces_are_text_or_bytes(self):
        reply = self.tokenize(content="a猫", with_pieces=True)
        self.assertEqual(reply["tokens"][0], {"id": 97, "piece": "a"})
        joined = b"".join(
            t["piece"].encode() if isinstance(t["piece"], str) else bytes(t["piece"])
            for t in reply["tokens"]
        )
        self.assertEqual(joined.decode(), "a猫")

    def test_a_chat_counts_like_its_turn(self):
        reply = self.tokenize(messages=[user("capital?")])
        usage = self.d.chat([user("capital?")])["usage"]
        self.assertEqual(reply["count"], usage["prompt_tokens"])
        self.assertLess(
            self.tokenize(messages=[user("capital?")], add_generation_prompt=False)["count"],
            reply["count"],
        )

    def test_what_is_wrong_is_named(self):
        for body, param in [
            ({}, "content"),
            ({"content": "a", "messages": [user("b")]}, "content"),
            ({"content": 5}, "content"),
            ({"messages": []}, "messages"),
            ({"content": "a", "with_pieces": 1}, "with_pieces"),
        ]:
            status, reply = self.d.post("/tokenize", body)
            self.assertEqual((status, reply["error"]["param"]), (400, param))


if __name__ == "__main__":
    main()
