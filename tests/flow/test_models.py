"""hearth models: what lies in the models' directories, what of it runs and fits; --model NAME."""

import json
import os
import struct
import subprocess
import unittest

from harness import BUILD, ModelsDirectory, Scripted, main

CLIENT = os.path.join(BUILD, "client/hearth")
SCRIPT = {"default": {"pieces": ["ok"]}}


def replace(path, old, new):
    """The same file with one string for another of its length."""
    assert len(old) == len(new)
    with open(path, "rb") as f:
        data = f.read()
    assert old in data
    with open(path, "wb") as f:
        f.write(data.replace(old, new))


class Models(ModelsDirectory, unittest.TestCase):
    def listed(self, d):
        status, body = d.get("/v1/hearth/models")
        self.assertEqual(status, 200)
        self.assertIn(self.dir, body["dirs"])
        data = {x["id"]: x for x in body["data"]}
        running = data.pop("script")  # the scripted model is no *.gguf, and is listed all the same
        self.assertTrue(running["loaded"] and running["runs"])
        return data

    def test_each_file_is_described_and_a_reason_given(self):
        self.make("small.Q8_0", "--type", "Q8_0")
        self.make("other")
        replace(self.path("other.gguf"), b"llama", b"rwkv7")
        with open(self.path("junk.gguf"), "w") as f:
            f.write("not a model")
        with open(self.path("notes.txt"), "w") as f:
            f.write("not even by name")
        os.mkdir(self.path("folder.gguf"))
        with Scripted(SCRIPT) as d:
            models = self.listed(d)
        self.assertEqual(set(models), {"small.Q8_0", "other", "junk"})
        small = models["small.Q8_0"]
        self.assertTrue(small["runs"] and small["fits"])
        self.assertEqual((small["arch"], small["ctx_train"], small["ctx"]), ("llama", 512, 512))
        # 2 layers × 1 KV head × (K and V of 32 F16)
        self.assertEqual(small["kv_bytes_per_token"], 2 * 2 * 32 * 2)
        self.assertEqual(small["file_bytes"], os.path.getsize(self.path("small.Q8_0.gguf")))
        self.assertFalse(models["other"]["runs"])
        self.assertIn("rwkv7", models["other"]["why"])
        self.assertIn("qwen2", models["other"]["why"])
        self.assertFalse(models["junk"]["runs"])
        self.assertIn("GGUF", models["junk"]["why"])

    def test_of_windowed_layers_it_is_said_what_an_old_token_takes(self):
        self.make("all-see", "--layers", "6")
        window = ["--layers", "6", "--set", "attention.sliding_window=70"]
        self.make("some-see", "--arch", "gemma3", *window)
        with Scripted(SCRIPT) as d:
            models = self.listed(d)
        self.assertNotIn("kv_window", models["all-see"])
        some = models["some-see"]
        self.assertTrue(some["runs"], some)
        self.assertEqual(some["kv_window"], 70)
        # One of six layers sees all.
        self.assertEqual(some["kv_bytes_per_token"], 6 * some["kv_bytes_per_old_token"])

    def test_what_does_not_fit_is_said_with_the_numbers(self):
        self.make("wide", "--ctx", "65536", "--layers", "64", "--kv-heads", "2")
        with Scripted(SCRIPT, "--memory", "128M") as d:
            wide = self.listed(d)["wide"]
        self.assertTrue(wide["runs"])
        self.assertTrue(wide["fits"], wide)
        self.assertLess(wide["ctx"], 8192)
        with Scripted(SCRIPT, "--memory", "128M", "--ctx", "8192") as d:
            wide = self.listed(d)["wide"]
        self.assertFalse(wide["fits"])
        self.assertIn("8192", wide["why"])
        self.assertIn("128", wide["why"])

    def test_a_changed_file_is_read_again(self):
        self.make("m", "--layers", "2")
        with Scripted(SCRIPT) as d:
            first = self.listed(d)["m"]
            again = self.listed(d)["m"]
            self.assertEqual(first, again)
            self.make("m", "--layers", "3")
            self.assertGreater(self.listed(d)["m"]["parameters"], first["parameters"])
            os.unlink(self.path("m.gguf"))
            self.assertEqual(self.listed(d), {})

    def test_hostile_files_leave_the_daemon_alive(self):
        self.make("whole")
        with open(self.path("whole.gguf"), "rb") as f:
            data = f.read()
        for n in (4, 8, 24, 100, len(data) // 2):
            with open(self.path(f"cut{n}.gguf"), "wb") as f:
                f.write(data[:n])
        with open(self.path("many.gguf"), "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, 2**62, 2**62))
        os.mkfifo(self.path("fifo.gguf"))
        with Scripted(SCRIPT) as d:
            models = self.listed(d)
            self.assertEqual(len(models), 7)
            self.assertEqual([k for k, v in models.items() if v["runs"]], ["whole"])
            self.assertEqual(d.get("/health")[0], 200)

    def test_a_real_person_s_directory_is_told_file_by_file(self):
        """Parts of a split model, an embedding model, one beyond any memory, torn downloads."""
        self.make("good")
        with open(self.path("good.gguf"), "rb") as f:
            data = f.read()
        for i in (1, 2, 3):
            part = f"big-0000{i}-of-00003"
            self.make(part, "--set", "abcde=3")
            replace(self.path(part + ".gguf"), b"llama.abcde", b"split.count")
        embedder = self.path("embedder.gguf")
        program = os.path.join(BUILD, "tests/engine/embed/mkbert")
        subprocess.run([program, embedder], check=True, capture_output=True)
        self.make("huge", "--layers", "500", "--kv-heads", "2", "--ctx", "1000000")
        with open(self.path("half.gguf"), "wb") as f:
            f.write(data[: len(data) // 2])
        with open(self.path("half.gguf.part"), "wb") as f:  # still being fetched
            f.write(data[:100])
        with open(self.path("empty.gguf"), "wb"):
            pass
        os.symlink("/no/such/file", self.path("dangling.gguf"))
        with Scripted(SCRIPT, "--memory", "128M", "--ctx", "8192") as d:
            models = self.listed(d)
            run = [CLIENT, "--socket", d.socket_path, "models"]
            text = subprocess.run(run, check=True, capture_output=True, text=True).stdout
            named = {x["id"] for x in d.get("/v1/models")[1]["data"]}
            for name, code in (
                ("big-00001-of-00003", "model_failed"),
                ("embedder", "model_failed"),
                ("huge", "model_too_large"),
                ("half", "model_failed"),
                ("empty", "model_failed"),
            ):
                body = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
                status, reply = d.post("/v1/chat/completions", body)
                self.assertEqual((status, reply["error"]["code"]), (400, code), reply)
                self.assertIn(name, reply["error"]["message"])
        parts = {f"big-0000{i}-of-00003" for i in (1, 2, 3)}
        self.assertEqual(set(models), {"good", "embedder", "huge", "half", "empty"} | parts)
        self.assertEqual({k for k, m in models.items() if m["runs"]}, {"good", "huge"})
        self.assertEqual(named, {"script", "good", "huge"})
        for part in parts:
            self.assertIn("3 parts", models[part]["why"])
        self.assertTrue(models["embedder"]["is_embedding"])
        self.assertIn("--embedding-model", models["embedder"]["why"])
        self.assertFalse(models["huge"]["fits"])
        for word in ("8192", "128"):
            self.assertIn(word, models["huge"]["why"])
        for name in ("half", "empty"):
            self.assertIn(name, text)
            self.assertIn(models[name]["why"][:40], text)
        self.assertIn("for --embedding-model", text)

    def test_the_client_prints_them(self):
        self.make("small")
        with Scripted(SCRIPT) as d:
            run = [CLIENT, "--socket", d.socket_path, "models"]
            text = subprocess.run(run, check=True, capture_output=True, text=True).stdout
            data = subprocess.run(run + ["--json"], check=True, capture_output=True, text=True)
        self.assertIn("small\n", text)
        self.assertIn("256 bytes a token", text)
        self.assertIn("runs, 512 tokens", text)
        self.assertIn(self.dir, text)
        self.assertEqual([x["id"] for x in json.loads(data.stdout)["data"]], ["small", "script"])

    def start(self, name):
        """hearthd-scripted takes its script from --model, too."""
        return subprocess.run(
            [
                os.path.join(BUILD, "tests/hearthd-scripted"),
                *("--model", name),
                *("--socket", os.path.join(self.home, "s")),
                *("--state-dir", os.path.join(self.home, "state")),
                *("--cache-dir", os.path.join(self.home, "cache")),
            ],
            capture_output=True,
            text=True,
            cwd=self.home,
        )

    def test_a_name_is_looked_for_and_what_is_unclear_is_refused(self):
        with open(self.path("Tale-1B.gguf"), "w") as f:
            json.dump({**SCRIPT, "no such key": 1}, f)  # found, then refused by the engine
        with open(self.path("Tale-7B.gguf"), "w") as f:
            json.dump(SCRIPT, f)
        for name in ("Tale-1B", "Tale-1B.gguf", "tale-1"):
            self.assertIn("no such key", self.start(name).stderr, name)
        several = self.start("tale").stderr
        self.assertIn("2 names begin so: Tale-1B.gguf, Tale-7B.gguf", several)
        absent = self.start("fable")
        self.assertEqual(absent.returncode, 78)
        self.assertIn("no model of that name in " + self.dir, absent.stderr)
        self.assertIn("Tale-7B.gguf", absent.stderr)
        self.assertIn("./Tale-1B", self.start("./Tale-1B").stderr)


if __name__ == "__main__":
    main()
