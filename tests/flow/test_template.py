"""Templates that take thinking out of earlier answers: the window is printed anew each turn, and
what it has in common with the one before is not read again.
"""

import unittest

from harness import Scripted, assistant, cached, content, main, system, user

THINK = "<think>\n" + "hm, " * 60 + "\n</think>\n\n"
SAID = ["so it is, "] * 100
STRIPPING = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ "
    "(m.content.split('</think>')[-1].lstrip('\n') if m.role == 'assistant' else m.content) ~ "
    "'<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content | trim ~ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Stripping(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.d = Scripted(
            {
                "chat_template": STRIPPING,
                "rules": [{"when": "long", "pieces": [THINK, *SAID]}],
                "default": {"pieces": [THINK, "Yes."]},
            }
        )

    @classmethod
    def tearDownClass(cls):
        cls.d.stop()

    def test_what_is_before_the_answer_is_kept_and_the_reason_is_the_template(self):  # B04
        m = [system("s" * 50), user("a question " * 20)]
        for _ in range(3):
            r = self.d.chat(m)
            self.assertEqual(content(r), THINK + "Yes.")
            before = r["usage"]["prompt_tokens"]
            m += [assistant(content(r)), user("and " * 50)]
            after = self.d.chat(m)
            cold = self.d.chat(m, hearth={"cache": False})
            self.assertEqual(content(after), content(cold))
            self.assertGreaterEqual(cached(after), before)
        self.d.check_blocks()

    def test_the_second_turn_says_template(self):
        m = [user("another long question " * 20)]
        r = self.d.chat(m)
        m += [assistant(content(r)), user("go on " * 50)]
        r = self.d.chat(m)
        self.assertEqual(r["hearth"]["cache"]["miss"]["reason"], "template")


class Strict(unittest.TestCase):
    def test_users_in_a_row_are_joined_and_other_orders_say_what_the_template_says(self):  # B36
        d = Scripted({"chat_template": STRICT, "default": {"pieces": ["fine"]}})
        try:
            r = d.chat([system("s"), user("one"), user("two")])
            self.assertEqual(content(r), "fine")
            status, r = d.post(
                "/v1/chat/completions", {"messages": [assistant("I begin"), user("u")]}
            )
            self.assertEqual(status, 400)
            self.assertIn("roles must alternate", r["error"]["message"])
        finally:
            d.stop()


if __name__ == "__main__":
    main()
