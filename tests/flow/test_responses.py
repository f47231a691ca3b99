"""/v1/responses: the object, input, conversations and branches; what is refused."""

from harness import Scripted, main, together, user
from responses import SCRIPT, Case, text_of

import history


class Object(Case):
    def test_has_every_field_of_the_format(self):
        r = self.respond(
            "capital?",
            metadata={"k": "v"},
            instructions="Be brief.",
            max_output_tokens=50,
            top_p=0.5,
        )
        self.assertRegex(r["id"], "^resp_[0-9a-f]{32}$")
        self.assertEqual(
            (r["object"], r["status"], r["error"], r["incomplete_details"]),
            ("response", "completed", None, None),
        )
        self.assertIsInstance(r["created_at"], int)
        self.assertEqual(
            (
                r["instructions"],
                r["max_output_tokens"],
                r["metadata"],
                r["top_p"],
                r["temperature"],
            ),
            ("Be brief.", 50, {"k": "v"}, 0.5, 0),
        )
        self.assertEqual(
            (
                r["conversation"],
                r["previous_response_id"],
                r["store"],
                r["truncation"],
                r["background"],
            ),
            (None, None, True, "auto", False),
        )
        self.assertEqual(
            (r["tools"], r["tool_choice"], r["parallel_tool_calls"], r["text"]),
            ([], "auto", True, {"format": {"type": "text"}}),
        )
        [m] = r["output"]
        self.assertRegex(m["id"], "^msg_[0-9a-f]{32}$")
        self.assertEqual((m["type"], m["role"], m["status"]), ("message", "assistant", "completed"))
        self.assertEqual(
            m["content"],
            [{"type": "output_text", "text": "Tokyo", "annotations": [], "logprobs": []}],
        )
        usage = r["usage"]
        self.assertEqual(usage["output_tokens"], 4)
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + 4)
        self.assertIn("cached_tokens", usage["input_tokens_details"])
        self.assertEqual(usage["output_tokens_details"], {"reasoning_tokens": 0})
        h = r["hearth"]
        self.assertEqual(
            set(h["receipt"]),
            {
                "strategy",
                "limit",
                "used",
                "reserved",
                "dropped",
                "summarised",
                "recalled_new",
                "recalled_kept",
                "pinned",
                "before",
                "after",
                "prefix_kept",
                "prefix_lost",
            },
        )
        self.assertEqual(
            set(h["cache"]), {"tokens", "ram", "disk", "shared", "computed", "saved_ms", "miss"}
        )
        self.assertEqual(
            set(h["timings"]),
            {
                "queue_ms",
                "plan_ms",
                "restore_ms",
                "prefill_ms",
                "ttft_ms",
                "decode_ms",
                "prefill_tps",
                "decode_tps",
                "drafted",
                "accepted",
            },
        )
        self.assertEqual(h["receipt"]["used"], usage["input_tokens"])

    def test_a_limit_makes_it_incomplete(self):
        r = self.respond("capital?", max_output_tokens=2)
        self.assertEqual(
            (r["status"], r["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"})
        )
        self.assertEqual((text_of(r), r["output"][0]["status"]), ("Toky", "incomplete"))

    def test_is_stored_and_read_and_deleted(self):
        r = self.respond("capital?")
        status, again = self.d.get("/v1/responses/" + r["id"])
        self.assertEqual((status, again), (200, r))
        status, gone, _ = self.d.request("DELETE", "/v1/responses/" + r["id"])
        self.assertEqual(gone.pop("hearth")["messages"], 2)
        self.assertEqual(
            (status, gone), (200, {"id": r["id"], "object": "response", "deleted": True})
        )
        for method, path in [("GET", ""), ("DELETE", ""), ("GET", "/input_items")]:
            status, error, _ = self.d.request(method, f"/v1/responses/{r['id']}{path}")
            self.assertEqual((status, error["error"]["code"]), (404, "not_found"))

    def test_store_false_keeps_nothing(self):
        before = self.n_stored()
        r = self.respond("capital?", store=False)
        self.assertEqual((text_of(r), r["store"]), ("Tokyo", False))
        self.assertEqual(self.n_stored(), before)
        self.assertEqual(self.d.get("/v1/responses/" + r["id"])[0], 404)
        error = self.refused(
            404,
            "previous_response_id",
            "previous_response_not_found",
            input="x",
            previous_response_id=r["id"],
        )
        self.assertIn("store: false", error["message"])

    def test_a_failure_of_the_model_is_an_error_that_is_told(self):
        status, reply = self.d.post("/v1/responses", {"input": "nan"})
        self.assertEqual(status, 500, reply)
        self.assertEqual(text_of(self.respond("capital")), "Tokyo")

    def test_nulls_are_absent_and_unknown_fields_ignored(self):
        fields = [
            "temperature",
            "top_p",
            "max_output_tokens",
            "metadata",
            "conversation",
            "previous_response_id",
            "instructions",
            "store",
            "stream",
            "tools",
            "tool_choice",
            "text",
            "reasoning",
            "include",
            "truncation",
            "background",
            "prompt",
            "top_logprobs",
            "user",
            "service_tier",
            "parallel_tool_calls",
            "hearth",
            "model",
            "stream_options",
        ]
        r = self.respond(
            "capital?",
            **{f: None for f in fields if f != "temperature" and f != "model"},
            foo={"a": [1]},
        )
        self.assertEqual(text_of(r), "Tokyo")
        # what clients send as their defaults changes nothing either
        r = self.respond(
            "capital?",
            tools=[],
            tool_choice="auto",
            text={"format": {"type": "text"}, "verbosity": "medium"},
            include=[],
            truncation="disabled",
            background=False,
            top_logprobs=0,
            reasoning={"effort": None, "summary": None},
            parallel_tool_calls=True,
            service_tier="auto",
            user="u",
            prompt_cache_key="k",
            safety_identifier="s",
        )
        self.assertEqual(text_of(r), "Tokyo")


class Input(Case):
    def test_strings_lists_and_parts_say_the_same(self):
        forms = [
            "capital?",
            [{"role": "user", "content": "capital?"}],
            [
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "cap"},
                        {"type": "text", "text": "ital?"},
                    ],
                }
            ],
            [{"role": "user", "content": "capital?", "id": "msg_x", "status": "completed"}],
        ]
        counts = {self.respond(f, store=False)["usage"]["input_tokens"] for f in forms}
        self.assertEqual(len(counts), 1, counts)

    def test_developer_is_system_and_history_may_be_sent(self):
        chat = [
            {"role": "developer", "content": "Answer."},
            {"role": "user", "content": "capital?"},
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Tokyo", "annotations": []}],
            },
            {"role": "user", "content": "thanks"},
        ]
        r = self.respond(chat)
        chat[0]["role"] = "system"
        self.assertEqual(self.respond(chat)["usage"]["input_tokens"], r["usage"]["input_tokens"])
        listed = self.input_items(r["id"], "?order=asc")
        self.assertEqual(
            [i["role"] for i in listed["data"]], ["system", "user", "assistant", "user"]
        )

    def test_instructions_are_a_system_message_of_this_response_alone(self):
        a = self.respond("capital?", instructions="Be brief.")
        same = self.respond(
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "capital?"}]
        )
        self.assertEqual(a["usage"]["input_tokens"], same["usage"]["input_tokens"])
        self.assertEqual([i["role"] for i in self.input_items(a["id"])["data"]], ["user"])
        b = self.respond("again", previous_response_id=a["id"])
        self.assertIsNone(b["instructions"])
        c = self.respond("again", previous_response_id=self.respond("capital?")["id"])
        self.assertEqual(b["usage"]["input_tokens"], c["usage"]["input_tokens"])

    def test_wrong_types_name_the_field(self):
        for param, value in [
            ("input", 5),
            ("input", {}),
            ("instructions", ["x"]),
            ("max_output_tokens", 0),
            ("max_output_tokens", 1.5),
            ("max_output_tokens", "5"),
            ("temperature", "hot"),
            ("temperature", 2.5),
            ("top_p", -1),
            ("store", "yes"),
            ("stream", 1),
            ("metadata", []),
            ("previous_response_id", 1),
            ("conversation", 7),
            ("truncation", "some"),
            ("tools", [{"type": "function"}]),
            ("background", True),
            ("prompt", {"id": "p"}),
            ("include", ["x"]),
            ("text", {"format": {"type": "json_object"}}),
            ("text", {"format": "json_object"}),
            ("text", {"format": 5}),
            ("response_format", {"format": "json_object"}),
            ("top_logprobs", 3),
            ("reasoning", {"effort": "low"}),
            ("hearth", "x"),
        ]:
            with self.subTest(param=param, value=value):
                self.refused(400, param, **{"input": "x", param: value})
        for code, value in [
            ("unsupported_parameter", {"background": True}),
            ("unsupported_parameter", {"tools": [{"type": "web_search"}]}),
        ]:
            self.refused(400, list(value)[0], code, input="x", **value)

    def test_wrong_items_name_their_place(self):
        for item, param in [
            ("x", "input[1]"),
            ({"role": "user"}, "input[1]"),
            ({"content": "x"}, "input[1].role"),
            ({"role": "tool", "content": "x"}, "input[1].role"),
            ({"role": "boss", "content": "x"}, "input[1].role"),
            ({"type": "function_call", "name": "f"}, "input[1].type"),
            ({"role": "user", "content": 5}, "input[1].content"),
            (
                {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
                "input[1].content",
            ),
        ]:
            with self.subTest(item=item):
                self.refused(400, param, input=[user("a"), item])

    def test_metadata_has_limits(self):
        for bad in [
            {str(i): "x" for i in range(17)},
            {"k" * 65: "x"},
            {"k": "v" * 513},
            {"k": 1},
            {"k": None},
        ]:
            self.refused(400, "metadata", input="x", metadata=bad)
        good = {str(i) + "é" * 62: "猫" * 512 for i in range(10)}
        self.assertEqual(self.respond("x", metadata=good)["metadata"], good)

    def test_nothing_to_answer_is_refused(self):
        self.refused(400, "input")
        self.refused(400, "input", input=[])
        self.refused(400, "input", conversation=self.conversation())
        self.refused(400, "input", input=[], previous_response_id=self.respond("capital?")["id"])

    def test_empty_text_is_a_message(self):
        self.assertEqual(text_of(self.respond("")), "ok")

    def test_too_much_is_refused_with_the_counts_and_stores_nothing(self):
        before = self.n_stored()
        c = self.conversation()
        error = self.refused(
            400, "input", "context_length_exceeded", input="z" * 2000, conversation=c
        )
        self.assertIn("512", error["message"])
        self.refused(400, "input", "context_length_exceeded", input="z" * 2000)
        self.assertEqual(self.items(c), [])
        self.assertEqual(self.n_stored(), (before[0] + 1, before[1]))


class Conversations(Case):
    def test_each_turn_goes_on_where_the_last_ended(self):
        c = self.conversation(items=[{"role": "system", "content": "S"}])
        a = self.respond("capital?", conversation=c)
        self.assertEqual(a["conversation"], {"id": c})
        b = self.respond("more", conversation={"id": c})
        self.assertEqual(
            self.items(c),
            [
                ("system", "S"),
                ("user", "capital?"),
                ("assistant", "Tokyo"),
                ("user", "more"),
                ("assistant", "ok"),
            ],
        )
        self.assertGreaterEqual(
            b["usage"]["input_tokens_details"]["cached_tokens"],
            a["usage"]["input_tokens"] + a["usage"]["output_tokens"] - 3,
        )
        self.assertEqual(
            [i["content"][0]["text"] for i in self.input_items(b["id"])["data"]], ["more"]
        )

    def test_generated_ids_are_read_as_they_were_generated(self):  # B03
        c = self.conversation()
        a = self.respond("split", conversation=c)
        b = self.respond("more", conversation=c)
        self.assertEqual(text_of(a), ".\n\nend")
        self.assertGreaterEqual(
            b["usage"]["input_tokens_details"]["cached_tokens"],
            a["usage"]["input_tokens"] + a["usage"]["output_tokens"] - 3,
        )

    def test_two_at_once_are_one_after_the_other(self):
        c = self.conversation()
        together(*[lambda i=i: self.respond(f"capital {i}", conversation=c) for i in range(4)])
        items = self.items(c)
        self.assertEqual([r for r, _ in items], ["user", "assistant"] * 4)
        self.assertEqual(
            sorted(t for r, t in items if r == "user"), [f"capital {i}" for i in range(4)]
        )

    def test_regenerate_and_edit_make_branches(self):
        c = self.conversation()
        self.respond("capital?", conversation=c)
        self.respond("second", conversation=c)
        _, listed = self.d.get(f"/v1/conversations/{c}/items?order=asc")
        question, answer, second, _ = listed["data"]
        self.respond("capital again", conversation=c, hearth={"parent": answer["id"]})
        self.assertEqual(
            self.items(c),
            [
                ("user", "capital?"),
                ("assistant", "Tokyo"),
                ("user", "capital again"),
                ("assistant", "Tokyo"),
            ],
        )
        # without input the stored question is answered again
        r = self.respond(None, conversation=c, hearth={"parent": second["id"]})
        self.assertEqual(self.items(c)[2:], [("user", "second"), ("assistant", "ok")])
        self.assertEqual(self.input_items(r["id"])["data"], [])
        self.respond("from the start", conversation=c, hearth={"parent": "root"})
        self.assertEqual(self.items(c), [("user", "from the start"), ("assistant", "ok")])
        self.refused(404, "hearth.parent", input="x", conversation=c, hearth={"parent": "msg_0"})
        self.refused(
            404,
            "hearth.parent",
            input="x",
            conversation=self.conversation(),
            hearth={"parent": question["id"]},
        )
        self.refused(400, "hearth.parent", input="x", hearth={"parent": question["id"]})
        self.assertEqual(self.items(c), [("user", "from the start"), ("assistant", "ok")])

    def test_unknown_conversations_are_not_found(self):
        for id in ["conv_0", "", "resp_1", "x' OR 1=1 --"]:
            self.refused(404, "conversation", "not_found", input="x", conversation=id)
        self.refused(400, "conversation.id", input="x", conversation={})

    def test_conversation_and_previous_response_exclude_each_other(self):
        r = self.respond("capital?")
        self.refused(
            400,
            "previous_response_id",
            input="x",
            conversation=self.conversation(),
            previous_response_id=r["id"],
        )
        self.refused(400, "store", input="x", conversation=self.conversation(), store=False)


class Deleted(Case):
    @classmethod
    def setUpClass(cls):  # at full speed the answer may be there before the deletion is
        cls.d = Scripted({**SCRIPT, "pace_us": 10000})

    def test_deleted_while_its_answer_is_written(self):
        c = self.conversation()
        with self.d.stream(
            "/v1/responses",
            {"input": "long", "conversation": c, "stream": True, "max_output_tokens": 300},
        ) as s:
            events = iter(s)
            while next(events)["type"] != "response.output_text.delta":
                pass
            status, gone, _ = self.d.request("DELETE", f"/v1/conversations/{c}")
            self.assertEqual((status, gone["deleted"]), (200, True))
            last = list(events)[-1]
        self.assertEqual(last["type"], "response.incomplete")
        self.assertEqual(last["response"]["hearth"]["stored"], False)
        self.assertEqual(self.d.get(f"/v1/conversations/{c}")[0], 404)
        self.assertEqual(self.d.get("/v1/responses/" + last["response"]["id"])[0], 404)


class Previous(Case):
    def test_a_chain_remembers(self):
        a = self.respond("capital?")
        b = self.respond("more", previous_response_id=a["id"])
        self.assertEqual(b["previous_response_id"], a["id"])
        self.assertGreaterEqual(
            b["usage"]["input_tokens_details"]["cached_tokens"],
            a["usage"]["input_tokens"] + a["usage"]["output_tokens"] - 3,
        )
        self.assertEqual(
            self.d.get("/v1/conversations")[1]["data"],
            [],
            "a chain makes no conversation that is listed",
        )

    def test_branches_run_side_by_side_and_know_nothing_of_each_other(self):
        a = self.respond("capital?")
        replies = together(
            *[
                lambda i=i: self.respond(f"branch {i}", previous_response_id=a["id"])
                for i in range(4)
            ]
        )
        self.assertEqual(len({r["usage"]["input_tokens"] for r in replies}), 1)
        for i, r in enumerate(replies):
            self.assertEqual(
                [x["content"][0]["text"] for x in self.input_items(r["id"])["data"]],
                [f"branch {i}"],
            )

    def test_input_items_page_both_ways(self):
        r = self.respond([user(str(i)) for i in range(7)])
        page = self.input_items(r["id"], "?limit=3&order=asc")
        self.assertEqual(
            ([i["content"][0]["text"] for i in page["data"]], page["has_more"]),
            (["0", "1", "2"], True),
        )
        self.assertEqual(
            (page["first_id"], page["last_id"]), (page["data"][0]["id"], page["data"][2]["id"])
        )
        page = self.input_items(r["id"], f"?limit=10&order=asc&after={page['last_id']}")
        self.assertEqual(
            ([i["content"][0]["text"] for i in page["data"]], page["has_more"]),
            (["3", "4", "5", "6"], False),
        )
        self.assertEqual(
            [i["content"][0]["text"] for i in self.input_items(r["id"], "?limit=2")["data"]],
            ["6", "5"],
        )

    def test_deleting_a_response_leaves_no_word_of_it(self):
        a = self.respond("capital PLUGHXYZZY")
        self.respond("more", previous_response_id=a["id"])
        b = self.respond("XYZZYPLUGH", previous_response_id=a["id"])
        self.assertEqual(self.d.request("DELETE", "/v1/responses/" + b["id"])[0], 200)
        self.assertFalse(history.holds(self.d, b"XYZZYPLUGH"))
        self.assertTrue(history.holds(self.d, b"PLUGHXYZZY"), "another response was asked with it")


class InputTokens(Case):
    def count(self, status=200, **body):
        got, reply = self.d.post("/v1/responses/input_tokens", body)
        self.assertEqual(got, status, reply)
        return reply

    def test_counts_what_a_response_would_read(self):
        before = self.n_stored()
        r = self.respond("capital?", instructions="Be brief.", store=False)
        reply = self.count(input="capital?", instructions="Be brief.")
        self.assertEqual(
            reply, {"object": "response.input_tokens", "input_tokens": r["usage"]["input_tokens"]}
        )
        self.assertEqual(self.n_stored(), before)
        c = self.conversation()
        a = self.respond("capital?", conversation=c)
        n = self.count(input="more", conversation=c)["input_tokens"]
        self.assertEqual(n, self.count(input="more", previous_response_id=a["id"])["input_tokens"])
        self.assertEqual(n, self.respond("more", conversation=c)["usage"]["input_tokens"])

    def test_counts_what_would_not_fit(self):
        self.assertGreater(self.count(input="z" * 2000)["input_tokens"], 512)

    def test_refuses_like_the_response(self):
        self.assertEqual(self.count(400, input=5)["error"]["param"], "input")
        self.assertEqual(
            self.count(404, input="x", conversation="conv_0")["error"]["param"], "conversation"
        )
        self.assertEqual(self.d.get("/v1/responses/input_tokens")[0], 405)


if __name__ == "__main__":
    main()
