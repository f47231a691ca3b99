"""A daemon that also listens on loopback, with keys for two owners."""

import os
import re
import tempfile

from harness import Daemon, Scripted

KEYS = {"alice": "alice-0123456789abcdef", "bob": "bob-0123456789abcdef"}


def scripted(script, *flags):
    """(daemon, port)"""
    folder = tempfile.mkdtemp(prefix="hearth-")
    keys = os.path.join(folder, "keys")
    with open(os.open(keys, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.writelines(f"{name}:{key}\n" for name, key in KEYS.items())
    d = Scripted(script, "--listen", "127.0.0.1:0", "--api-key-file", keys, *flags, folder=folder)
    d.is_kept = False
    return d, port_of(d)


def port_of(d: Daemon):
    return int(re.search(r"listening on 127\.0\.0\.1:(\d+)", d.log()).group(1))
