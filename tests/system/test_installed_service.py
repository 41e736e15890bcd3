# SPDX-License-Identifier: Apache-2.0
"""The service as README installs it, word for word, on a fresh Debian with a real systemd and a simulated board."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from jetdvfs.tests.support.board_daemon import eventually
from jetdvfs.tests.system.machine import Machine, booted, commands_of

pytestmark = pytest.mark.system

ADMIN, OUTSIDER = "admin", "outsider"
LOW = "1190400,675750000,1600000000"
MODEL = "/srv/jetdvfs/profiles/reference/squeezenet1_0.pt --input 1x3x224x224"


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Somebody who may use sudo has followed README; nobody has configured anything."""
    with booted(request.param, tmp_path_factory.mktemp(request.param)) as machine:
        for user in (ADMIN, OUTSIDER):
            machine.say(f"useradd --create-home --shell /bin/bash {user}")
        machine.say(f"echo '{ADMIN} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{ADMIN} && chown -R {ADMIN}: /srv/jetdvfs")
        machine.say("apt-get update")
        for command in commands_of("On a board"):
            machine.say(f"cd /srv/jetdvfs && {command}", ADMIN)
        yield machine


@pytest.fixture
def found(machine: Machine) -> Iterator[dict[str, str]]:
    """The board's settings with the service running and nothing held; afterwards the service is as README left it."""
    found = machine.settings()
    yield found
    machine.say("systemctl disable --now jetdvfsd.socket && systemctl reset-failed && systemctl restart jetdvfsd")


@contextlib.contextmanager
def held(machine: Machine, what: str) -> Iterator[dict[str, Any]]:
    """Something that a member holds in the background, as ``jetdvfs hold`` tells of it."""
    command = machine.command(f"echo $$; exec jetdvfs hold {what} --json", ADMIN)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as holding:
        assert holding.stdout is not None
        process = int(holding.stdout.readline())
        try:
            yield json.loads(holding.stdout.readline())
        finally:
            machine.run(f"kill {process}")


def is_active(machine: Machine) -> bool:
    return machine.run("systemctl is-active jetdvfsd").stdout.strip() == "active"


def test_the_service_runs_and_starts_at_boot(machine: Machine) -> None:
    assert is_active(machine), machine.journal()
    assert machine.say("systemctl is-enabled jetdvfsd") == "enabled"
    assert machine.say("systemctl show --property=NRestarts --value jetdvfsd") == "0"
    assert "Traceback" not in machine.journal()


def test_a_member_of_the_group_holds_a_configuration(machine: Machine, found: dict[str, str]) -> None:
    with held(machine, f"--config {LOW}") as lease:
        assert lease["applied"]["verified"]
        assert machine.gpu_hz() == 675750000 and machine.settings() != found
        assert eventually(lambda: "1 leases" in machine.say("systemctl show --property=StatusText jetdvfsd"))
        (listed,) = json.loads(machine.say("jetdvfs status --json", ADMIN))["leases"]
        assert listed["lease"] == lease["lease"]
    assert eventually(lambda: machine.settings() == found)


def test_a_member_holds_a_target_with_the_profile_configured(machine: Machine, found: dict[str, str]) -> None:
    machine.say("echo 'profile: agx-xavier-sim' > /etc/jetdvfs/jetdvfsd.yaml && systemctl restart jetdvfsd")
    with held(machine, f"{MODEL} --target latency_ms=20") as lease:
        assert lease["plan"]["target"] == "latency_ms=20"
        assert machine.gpu_hz() == lease["plan"]["choice"]["configuration"]["gpu_hz"]
        assert machine.settings() != found
    assert eventually(lambda: machine.settings() == found)
    machine.say("rm /etc/jetdvfs/jetdvfsd.yaml")


@pytest.mark.parametrize("verb", ["status", f"hold --config {LOW} -- true"])
def test_somebody_outside_the_group_is_told_how_to_join_it(machine: Machine, verb: str) -> None:
    done = machine.run(f"jetdvfs {verb}", OUTSIDER)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "permission denied on /run/jetdvfs/jetdvfs.sock: join the group jetdvfs with 'sudo usermod" in done.stderr


def test_a_daemon_that_is_killed_gives_the_board_back_and_starts_again(machine: Machine, found: dict[str, str]) -> None:
    with held(machine, f"--config {LOW}"):
        assert machine.settings() != found
        machine.say("kill -KILL $(systemctl show --property=MainPID --value jetdvfsd)")
        assert eventually(lambda: machine.settings() == found, 10), machine.journal()
    assert eventually(lambda: is_active(machine), 15), machine.journal()
    assert machine.say("systemctl show --property=NRestarts --value jetdvfsd") == "1"
    machine.say(f"jetdvfs hold --config {LOW} -- true", ADMIN)


def test_a_service_that_is_stopped_gives_the_board_back(machine: Machine, found: dict[str, str]) -> None:
    with held(machine, f"--config {LOW}"):
        assert machine.settings() != found
        machine.say("systemctl stop jetdvfsd")
        assert machine.settings() == found
    assert machine.run("jetdvfs status", ADMIN).returncode == 6


def test_the_socket_starts_the_service_and_outlives_it(machine: Machine, found: dict[str, str]) -> None:
    machine.say("systemctl stop jetdvfsd && systemctl enable --now jetdvfsd.socket")
    assert not is_active(machine)
    socket = machine.say("stat --format='%A %U %G %i' /run/jetdvfs/jetdvfs.sock")
    assert socket.startswith("srw-rw---- root jetdvfs ")
    assert machine.run("jetdvfs status", OUTSIDER).returncode == 3
    assert not is_active(machine)
    with held(machine, f"--config {LOW}"):
        assert is_active(machine) and machine.settings() != found
        machine.say("systemctl restart jetdvfsd")
        assert machine.settings() == found
    machine.say(f"jetdvfs hold --config {LOW} -- true", ADMIN)
    assert machine.say("stat --format='%A %U %G %i' /run/jetdvfs/jetdvfs.sock") == socket
