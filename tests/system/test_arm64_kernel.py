# SPDX-License-Identifier: Apache-2.0
"""The package on Debian's kernel for arm64, booted in QEMU: confinement by that kernel, leases, and their ends.

The tests run in order on one guest; the last one upgrades the package.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jetdvfs.tests.support.daemons.board_daemon import eventually
from jetdvfs.tests.support.daemons.confined import START
from jetdvfs.tests.system import image
from jetdvfs.tests.system.guest import PATIENCE_S, Guest, booted

pytestmark = [pytest.mark.system, pytest.mark.emulated]

PYTHON = "PYTHONPATH=/opt/testing /usr/lib/jetdvfs/bin/python3"
LOW, LOW_GPU_HZ = "1190400,675750000,1600000000", 675750000
MODEL = f"{image.SOURCE}/profiles/reference/squeezenet1_0.pt"
CONFIGURATION = "profile: agx-xavier-sim\n"


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    folder = tmp_path_factory.mktemp("arm64")
    with booted(image.made(CONFIGURATION, folder / "disk"), folder / "run") as guest:
        guest.say("systemctl start jetdvfsd")
        yield guest


@pytest.fixture
def found(guest: Guest) -> dict[str, str]:
    """The board's settings with the service running and no lease."""
    return guest.settings()


@contextmanager
def held(guest: Guest, words: str = f"--config {LOW}") -> Iterator[dict[str, str]]:
    """The board's settings under a member's lease."""
    output = "--property=StandardOutput=truncate:/run/lease --property=StandardError=inherit"
    guest.say(f"systemd-run --quiet --collect --unit=holder --uid=admin {output} jetdvfs hold {words} --json")
    try:
        guest.say("until test -s /run/lease || ! systemctl is-active --quiet holder; do sleep 0.5; done")
        assert json.loads(guest.say("head -n 1 /run/lease"))["applied"]["verified"]
        yield guest.settings()
    finally:
        guest.run("systemctl stop holder; rm /run/lease")


def is_set(guest: Guest, settings: dict[str, str]) -> bool:
    return eventually(lambda: guest.settings() == settings, PATIENCE_S)


def holds_again(guest: Guest, holding: dict[str, str]) -> bool:
    return is_set(guest, holding) and eventually(lambda: guest.gpu_hz() == LOW_GPU_HZ, PATIENCE_S)


def test_the_service_runs_on_this_kernel(guest: Guest) -> None:
    assert re.fullmatch(r"6\.\d+\.\S+-arm64 aarch64", guest.say("uname -r -m"))
    assert guest.service("NRestarts") == "0"
    assert "Traceback" not in guest.journal()


def test_a_worker_is_confined_by_all_that_this_kernel_has(guest: Guest) -> None:
    guest.say(f"cat >/root/confined.py <<'END'\n{START}print(*walls, sep=', ')\nEND")
    walls = guest.say(f"{PYTHON} /root/confined.py")
    assert re.fullmatch(r"no network, a user of its own, Landlock \(ABI \d+\), a filter of system calls", walls)


def test_the_tests_of_confinement_pass(guest: Guest) -> None:
    tests = " ".join(f"tests/daemon/worker/test_{name}.py" for name in ("sandbox", "seccomp", "user_pool"))
    # They need no shared fixtures, which would import the simulated board.
    ran = guest.run(f"cd {image.SOURCE} && {PYTHON} -m pytest -q -rs --noconftest -p no:cacheprovider {tests}")
    assert ran.returncode == 0, ran.stdout[-6000:]
    skipped = re.findall(r"^SKIPPED .*", ran.stdout, re.MULTILINE)
    assert not [line for line in skipped if re.search("root|Landlock|filter of system calls", line)], skipped


def test_a_worker_reads_a_model_for_a_lease(guest: Guest, found: dict[str, str]) -> None:
    with held(guest, f"{MODEL} --input 1x3x224x224 --target latency_ms=20") as settings:
        plan = json.loads(guest.say("head -n 1 /run/lease"))["plan"]
        assert plan["target"] == "latency_ms=20"
        assert settings != found
        assert guest.gpu_hz() == plan["choice"]["configuration"]["gpu_hz"]
    assert is_set(guest, found)


def test_a_killed_daemon_s_clocks_are_restored_and_held_again(guest: Guest, found: dict[str, str]) -> None:
    with held(guest) as holding:
        assert holding != found and guest.gpu_hz() == LOW_GPU_HZ
        guest.say("systemctl kill --kill-who=main --signal=KILL jetdvfsd")
        assert is_set(guest, found), guest.journal()
        assert holds_again(guest, holding), guest.journal()
    assert guest.service("NRestarts") == "1"
    assert is_set(guest, found)


def test_a_stopped_service_restores_the_clocks(guest: Guest, found: dict[str, str]) -> None:
    with held(guest):
        assert guest.settings() != found
        guest.say("systemctl stop jetdvfsd")
        assert guest.settings() == found
    guest.say("systemctl start jetdvfsd")


def test_an_upgrade_restores_the_clocks_and_the_new_version_holds_them_again(guest: Guest, found: dict[str, str]) -> None:
    guest.say(
        "dpkg-deb --raw-extract /srv/dist/jetdvfs_*.deb /tmp/newer && sed -i 's/^Version: .*/Version: 99/' "
        "/tmp/newer/DEBIAN/control && dpkg-deb -Znone --build /tmp/newer /tmp/newer.deb"
    )
    process = guest.service("MainPID")
    with held(guest) as holding:
        guest.say("dpkg --unpack /tmp/newer.deb")
        assert guest.settings() == found
        guest.say("dpkg --configure jetdvfs")
        assert holds_again(guest, holding), guest.journal()
    assert guest.service("MainPID") != process
    assert guest.say("dpkg-query --show --showformat='${Version}' jetdvfs") == "99"
    assert is_set(guest, found)
