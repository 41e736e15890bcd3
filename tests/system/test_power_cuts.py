# SPDX-License-Identifier: Apache-2.0
"""A robot maker's image with a default lease: power cuts at ten moments of its first boot, and the boot after each.

The image has the package and a configuration. Power is cut at a random moment of each step of the first boot, and right after
the step is confirmed. A cut loses half of the writes that no later flush of the disk covers.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from jetdvfs.tests.support.daemons.board_daemon import GPU, eventually
from jetdvfs.tests.system import image
from jetdvfs.tests.system.cut_disk import disk_after_cut
from jetdvfs.tests.system.guest import PATIENCE_S, Guest, booted

pytestmark = [pytest.mark.system, pytest.mark.emulated]

MODEL = f"{image.SOURCE}/profiles/reference/squeezenet1_0.pt"
CONFIGURATION = f"""\
profile: agx-xavier-sim
default: {{model: {MODEL}, input: [1x3x224x224], target: latency_ms=20}}
"""
PROFILE = "/usr/lib/python3/dist-packages/jetdvfs/profiles/bundles/agx-xavier-sim"
UNSYNCED = "/var/tmp/unsynced"
MOMENTS = 10
LEARN = """\
import time
from jetdvfs import Client
with Client() as client, client.hold(target="latency_ms=50", app="camera") as lease:
    for _ in range(100):
        time.sleep(0.03)
        lease.report(20.0)
    lease.missed()
"""


class Fact(NamedTuple):
    """A command and its output once something is confirmed."""

    command: str
    output: str


class Moment(NamedTuple):
    """Moment of a power cut: the length of the log of writes, and all that was confirmed before."""

    written_bytes: int
    facts: tuple[Fact, ...]


class FirstBoot(NamedTuple):
    image: image.Image
    writes: Path
    taken_over: dict[str, str]
    moments: list[Moment]


#: What is done in the first boot, and the command whose output is then confirmed.
STEPS = (
    ("systemctl start jetdvfsd", "systemctl is-enabled jetdvfsd"),
    (f"until grep -q userspace /{GPU}/governor; do sleep 0.5; done", f"cat /{image.CONFIGURATION}"),
    ("jetdvfs profile install /srv/robot", "cd /var/lib/jetdvfs/bundles/robot && sha256sum *"),
    (
        "/usr/lib/jetdvfs/bin/python3 /srv/learn.py",
        "jetdvfs status --learned --json | grep -E '\"(app|frames|configurations)\"'",
    ),
    (f"echo it >{UNSYNCED}; jetdvfs config init --force", "sha256sum /etc/jetdvfs/jetdvfsd.yaml"),
)


@pytest.fixture(scope="module")
def first_boot(tmp_path_factory: pytest.TempPathFactory) -> FirstBoot:
    folder = tmp_path_factory.mktemp("robot")
    made = image.made(CONFIGURATION, folder / "disk")
    running, writes = folder / "running", folder / "writes"
    subprocess.run(["cp", "--sparse=always", made.disk, running], check=True)
    moments: list[Moment] = []
    with booted(made._replace(disk=running), folder / "run", writes) as guest:
        guest.say(f"cp -r {PROFILE} /srv/robot && sed -i '0,/agx-xavier-sim/s//robot/' /srv/robot/manifest.json")
        guest.say(f"cat >/srv/learn.py <<'END'\n{LEARN}END")
        chance, before = random.Random(43), 0
        facts: list[Fact] = []
        for step, shown in STEPS:
            guest.say(step)
            now = writes.stat().st_size
            moments.append(Moment(chance.randint(before, now), tuple(facts)))
            facts.append(Fact(shown, guest.say(shown)))
            moments.append(Moment(now, tuple(facts)))
            before = now
        under_default = taken_over(guest)
    assert len(moments) == MOMENTS
    running.unlink()
    return FirstBoot(made, writes, under_default, moments)


@pytest.fixture(params=range(MOMENTS))
def moment(request: pytest.FixtureRequest, first_boot: FirstBoot) -> Moment:
    number: int = request.param
    return first_boot.moments[number]


@pytest.fixture
def second_boot(first_boot: FirstBoot, moment: Moment, tmp_path: Path) -> Iterator[Guest]:
    """The guest after a power cut at this moment of its first boot."""
    disk = tmp_path / "disk"
    disk_after_cut(first_boot.image.disk, first_boot.writes, moment.written_bytes, disk, seed=moment.written_bytes)
    with booted(first_boot.image._replace(disk=disk), tmp_path / "run") as guest:
        yield guest
    disk.unlink()


def taken_over(guest: Guest) -> dict[str, str]:
    """The board's settings without the memory clock, which depends on other work's demand."""
    return {path: value for path, value in guest.settings().items() if not path.endswith("/rate")}


def test_after_a_power_cut_the_default_holds_again_and_nothing_confirmed_is_lost(
    first_boot: FirstBoot, moment: Moment, second_boot: Guest
) -> None:
    assert eventually(lambda: taken_over(second_boot) == first_boot.taken_over, PATIENCE_S), second_boot.journal()
    (lease,) = json.loads(second_boot.say("jetdvfs status --json"))["leases"]
    assert lease["app"] == "jetdvfsd", lease
    journal = second_boot.journal()
    assert not [words for words in ("Traceback", "is not read", "damaged", "set aside") if words in journal], journal
    assert second_boot.service("NRestarts") == "0"
    second_boot.say("jetdvfs config check")
    for fact in moment.facts:
        assert second_boot.say(fact.command) == fact.output, fact.command
    if moment == first_boot.moments[-1]:
        assert second_boot.run(f"test -s {UNSYNCED}").returncode != 0, "the cut lost nothing"
