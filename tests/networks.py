"""Two hosts on this machine: network namespaces that a cable joins, which a test may cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

NAMES = ("bert-jax-0", "bert-jax-1")
ADDRESSES = ("10.77.0.1", "10.77.0.2")


class Hosts:
    """What starts a command on each host, and the cable between them."""

    def __init__(self, folder: Path):
        self.commands = [
            self._command(folder, *host) for host in zip(NAMES, ADDRESSES, strict=True)
        ]

    def cable(self, state: str) -> None:
        """Joins (up) or cuts (down) it."""
        _ip(f"-n {NAMES[1]} link set veth {state}")

    def _command(self, folder: Path, name: str, address: str) -> list[str]:
        hosts = folder / f"{name}.hosts"
        # gloo meets the others at the address of the host's own name.
        hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")
        inside = f'mount --bind {hosts} /etc/hosts && hostname {name} && exec "$@"'
        return [*f"ip netns exec {name} unshare --mount --uts sh -c".split(), inside, "sh"]


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Makes two hosts joined by a cable; skips the test where namespaces cannot be made."""
    if missing := [tool for tool in ("ip", "unshare") if shutil.which(tool) is None]:
        pytest.skip(f"no command {missing[0]}")
    if os.geteuid():
        pytest.skip("network namespaces are made by root")
    with contextlib.ExitStack() as closing:
        try:
            for name in NAMES:
                _ip(f"netns add {name}")
                closing.callback(_ip, f"netns del {name}")
            _ip(f"link add veth netns {NAMES[0]} type veth peer name veth netns {NAMES[1]}")
            for name, address in zip(NAMES, ADDRESSES, strict=True):
                for link in ("lo", "veth"):
                    _ip(f"-n {name} link set {link} up")
                _ip(f"-n {name} addr add {address}/24 dev veth")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield Hosts(folder)


def _ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)
