"""
The official openai client, pinned (scripts/openai.txt), over TCP: what it sends is understood, and
what it gets has its types.
"""

import os
import sys
import unittest

import tcp
from harness import BUILD, SOURCE, main, user

for pydeps in (os.path.join(BUILD, "pydeps"), os.path.join(SOURCE, "build", "pydeps")):
    if os.path.isdir(pydeps):
        sys.path.insert(0, pydeps)
        break
try:
    import openai
except ImportError as e:
    if os.environ.get("CI"):
        raise
    print(f"no openai client ({e}): scripts/get-openai build/pydeps fetches it")
    sys.exit(77)  # meson: skipped

SCRIPT = {
    "ctx": 512,
    "rules": [
        {"when": "capital", "pieces": ["To", "ky", "o"]},
        {"when": "llama", "bytes": "f09fa699e4bda0"},
        {"when": "nan", "pieces": ["a", "b", "c"], "all_nan_at": 2},
    ],
    "default": {"pieces": ["ok"]},
}


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d, cls.port = tcp.scripted(SCRIPT)
        cls.client = cls.connect("alice")

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.d.stop()

    @classmethod
    def connect(cls, name=None, key=None):
        return openai.OpenAI(
            base_url=f"http://127.0.0.1:{cls.port}/v1", api_key=key or tcp.KEYS[name], max_retries=0
        )

    def refused(self, error, call, *args, **kwargs):
        with self.assertRaises(error) as raised:
            call(*args, **kwargs)
        return raised.exception


class Chat(Client):
    def test_whole(self):
        r = self.client.chat.completions.create(
            model="default", messages=[user("capital?")], temperature=0
        )
        self.assertEqual(
            (r.choices[0].message.content, r.choices[0].message.role, r.choices[0].finish_reason),
            ("Tokyo", "assistant", "stop"),
        )
        self.assertEqual(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)
        self.assertIsInstance(r.usage.prompt_tokens_details.cached_tokens, int)
        self.assertIn("receipt", r.to_dict()["hearth"])

    def test_stream(self):
        chunks = list(
            self.client.chat.completions.create(
                model="default",
                messages=[user("capital?")],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        self.assertEqual(
            "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), "Tokyo"
        )
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop")
        self.assertEqual((chunks[-1].choices, chunks[-1].usage.completion_tokens), ([], 4))

    def test_stream_helper(self):
        with self.client.chat.completions.stream(
            model="default", messages=[user("llama")]
        ) as stream:
            for _ in stream:
                pass
            self.assertEqual(
                stream.get_final_completion().choices[0].message.content,
                bytes.fromhex("f09fa699e4bda0").decode(),
            )

    def test_an_error_in_the_stream_raises(self):
        self.refused(
            openai.APIError,
            lambda: list(
                self.client.chat.completions.create(
                    model="default", messages=[user("nan")], stream=True
                )
            ),
        )

    def test_parts_and_limits(self):
        r = self.client.chat.completions.create(
            model="default",
            max_tokens=2,
            stop=["zzz"],
            seed=1,
            messages=[
                {"role": "developer", "content": "x"},
                {"role": "user", "content": [{"type": "text", "text": "capital?"}], "name": "n"},
            ],
        )
        self.assertEqual(
            (r.choices[0].message.content, r.choices[0].finish_reason), ("Toky", "length")
        )

    def test_completions(self):
        r = self.client.completions.create(
            model="default", prompt="capital?", max_tokens=2, temperature=0
        )
        self.assertEqual(r.object, "text_completion")
        self.assertEqual(
            "".join(
                c.choices[0].text
                for c in self.client.completions.create(
                    model="default", prompt="capital?", max_tokens=2, temperature=0, stream=True
                )
            ),
            r.choices[0].text,
        )


class Responses(Client):
    def test_whole(self):
        r = self.client.responses.create(
            model="default",
            input="capital?",
            instructions="Be brief.",
            temperature=0,
            metadata={"k": "v"},
        )
        self.assertEqual((r.output_text, r.status, r.metadata), ("Tokyo", "completed", {"k": "v"}))
        self.assertEqual(
            (r.usage.output_tokens, r.usage.output_tokens_details.reasoning_tokens), (4, 0)
        )
        self.assertIsInstance(r.usage.input_tokens_details.cached_tokens, int)
        again = self.client.responses.retrieve(r.id)
        self.assertEqual(again.to_dict(), r.to_dict())
        self.client.responses.delete(r.id)
        self.refused(openai.NotFoundError, self.client.responses.retrieve, r.id)

    def test_stream(self):
        events = list(self.client.responses.create(model="default", input="capital?", stream=True))
        self.assertEqual(
            "".join(e.delta for e in events if e.type == "response.output_text.delta"), "Tokyo"
        )
        self.assertEqual(
            (events[0].type, events[-1].type), ("response.created", "response.completed")
        )
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual(events[-1].response.output_text, "Tokyo")
        self.assertTrue(all(type(e).__name__.startswith("Response") for e in events))

    def test_stream_helper(self):
        with self.client.responses.stream(model="default", input="llama") as stream:
            said = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual((said, final.output_text), (bytes.fromhex("f09fa699e4bda0").decode(),) * 2)

    def test_limit_and_failure(self):
        r = self.client.responses.create(model="default", input="capital?", max_output_tokens=1)
        self.assertEqual(
            (r.status, r.incomplete_details.reason), ("incomplete", "max_output_tokens")
        )
        events = list(
            self.client.responses.create(
                model="default", input="capital?", max_output_tokens=1, stream=True
            )
        )
        self.assertEqual(events[-1].type, "response.incomplete")
        events = list(self.client.responses.create(model="default", input="nan", stream=True))
        self.assertEqual(
            (events[-1].type, events[-1].response.status), ("response.failed", "failed")
        )
        self.assertTrue(events[-1].response.error.message)
        self.refused(
            openai.InternalServerError, self.client.responses.create, model="default", input="nan"
        )

    def test_chain_and_input_items(self):
        a = self.client.responses.create(
            model="default",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "capital?"}]}],
        )
        # the client's own way: its output back as input
        b = self.client.responses.create(
            model="default",
            store=False,
            input=[user("capital?"), *[o.to_dict() for o in a.output], user("more")],
        )
        c = self.client.responses.create(model="default", previous_response_id=a.id, input="more")
        self.assertEqual(b.usage.input_tokens, c.usage.input_tokens)
        self.assertGreater(c.usage.input_tokens_details.cached_tokens, a.usage.input_tokens)
        self.assertEqual(
            [i.content[0].text for i in self.client.responses.input_items.list(c.id)], ["more"]
        )
        n = self.client.responses.input_tokens.count(
            model="default", previous_response_id=a.id, input="more"
        )
        self.assertEqual(n.input_tokens, c.usage.input_tokens)


class Conversations(Client):
    def test_from_creation_to_deletion(self):
        api = self.client.conversations
        c = api.create(
            metadata={"topic": "tea"},
            items=[{"type": "message", "role": "system", "content": "Be brief."}],
        )
        self.assertEqual(
            (api.retrieve(c.id).metadata, c.object), ({"topic": "tea"}, "conversation")
        )
        self.assertEqual(
            api.update(c.id, metadata={"topic": "coffee"}).metadata, {"topic": "coffee"}
        )
        r = self.client.responses.create(model="default", conversation=c.id, input="capital?")
        self.assertEqual(r.conversation.id, c.id)
        self.client.responses.create(model="default", conversation={"id": c.id}, input="more")
        self.assertEqual(
            [(i.role, i.content[0].text) for i in api.items.list(c.id, order="asc")],
            [
                ("system", "Be brief."),
                ("user", "capital?"),
                ("assistant", "Tokyo"),
                ("user", "more"),
                ("assistant", "ok"),
            ],
        )
        added = api.items.create(
            c.id, items=[{"type": "message", "role": "user", "content": str(i)} for i in range(20)]
        )
        self.assertEqual(len(added.data), 20)
        self.assertEqual(len(list(api.items.list(c.id, limit=7))), 25)  # the client pages by itself
        item = api.items.retrieve(added.data[3].id, conversation_id=c.id)
        self.assertEqual(
            (item.type, item.status, item.content[0].text), ("message", "completed", "3")
        )
        self.assertEqual(api.items.delete(item.id, conversation_id=c.id).id, c.id)
        self.refused(openai.NotFoundError, api.items.retrieve, item.id, conversation_id=c.id)
        gone = api.delete(c.id)
        self.assertEqual((gone.deleted, gone.object), (True, "conversation.deleted"))
        self.refused(openai.NotFoundError, api.retrieve, c.id)

    def test_another_owner_sees_nothing(self):
        c = self.client.conversations.create(
            items=[{"type": "message", "role": "user", "content": "secret"}]
        )
        r = self.client.responses.create(model="default", conversation=c.id, input="capital?")
        item = next(iter(self.client.conversations.items.list(c.id)))
        bob = self.connect("bob")
        for call, args in [
            (bob.conversations.retrieve, [c.id]),
            (bob.conversations.delete, [c.id]),
            (bob.responses.retrieve, [r.id]),
            (bob.responses.delete, [r.id]),
            (lambda id: list(bob.conversations.items.list(id)), [c.id]),
            (lambda id: bob.conversations.items.retrieve(item.id, conversation_id=id), [c.id]),
            (lambda id: bob.responses.create(model="default", input="x", conversation=id), [c.id]),
            (
                lambda id: bob.responses.create(
                    model="default", input="x", previous_response_id=id
                ),
                [r.id],
            ),
        ]:
            self.refused(openai.NotFoundError, call, *args)
        bob.close()
        self.assertEqual(self.client.conversations.retrieve(c.id).id, c.id)


class Others(Client):
    def test_models(self):
        models = list(self.client.models.list())
        self.assertEqual([m.object for m in models], ["model"])
        self.assertEqual(self.client.models.retrieve(models[0].id).id, models[0].id)
        self.refused(openai.NotFoundError, self.client.models.retrieve, "no-such-model")

    def test_errors_carry_code_and_param(self):
        e = self.refused(
            openai.BadRequestError,
            self.client.responses.create,
            model="default",
            input="x",
            temperature=3,
        )
        self.assertEqual(
            (e.param, e.status_code, e.type), ("temperature", 400, "invalid_request_error")
        )
        e = self.refused(
            openai.BadRequestError,
            self.client.responses.create,
            model="default",
            input="x",
            tools=[{"type": "web_search"}],
        )
        self.assertEqual((e.code, e.param), ("unsupported_parameter", "tools"))
        e = self.refused(
            openai.BadRequestError,
            self.client.chat.completions.create,
            model="default",
            messages=[user("z" * 1000)],
        )
        self.assertEqual(e.code, "context_length_exceeded")

    def test_a_wrong_key_is_an_authentication_error(self):
        stranger = self.connect(key="nobody-0123456789abcdef")
        e = self.refused(openai.AuthenticationError, stranger.models.list)
        self.assertEqual(e.status_code, 401)
        stranger.close()


if __name__ == "__main__":
    main()
