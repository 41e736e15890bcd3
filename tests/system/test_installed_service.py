# SPDX-License-Identifier: Apache-2.0
"""The package as README builds and installs it, word for word, on a fresh Debian with a real systemd and a simulated board.

The tests of one machine run in order: the last ones upgrade the package, remove it, and install without one.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jetdvfs.tests.support.daemons.board_daemon import eventually
from jetdvfs.tests.system.machine import Machine, booted, commands_of

pytestmark = pytest.mark.system

ADMIN, OUTSIDER = "admin", "outsider"
LOW = "1190400,675750000,1600000000"
MODEL = "/srv/jetdvfs/profiles/reference/squeezenet1_0.pt --input 1x3x224x224"
SUITES = ("bookworm", "trixie")
DROP_IN = "/etc/jetdvfs/jetdvfsd.yaml.d/50-test.yaml"
VARLINK = "unix:/run/jetdvfs/jetdvfs.sock"


def set_up(suite: str, folder: Path, stack: contextlib.ExitStack) -> Machine:
    """A machine on which somebody who may use sudo has followed README; nobody has configured anything."""
    machine = stack.enter_context(booted(suite, folder))
    for user in (ADMIN, OUTSIDER):
        machine.say(f"useradd --create-home --shell /bin/bash {user}")
    machine.say(f"echo '{ADMIN} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{ADMIN} && chown -R {ADMIN}: /srv/jetdvfs")
    machine.say("apt-get update")
    for command in commands_of("On your Jetson"):
        machine.say(f"cd /srv/jetdvfs && {command}", ADMIN)
    return machine


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[Machine]]]:
    """All of them, set up side by side: it takes longer than the tests do."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        yield {suite: pool.submit(set_up, suite, tmp_path_factory.mktemp(suite), stack) for suite in SUITES}


@pytest.fixture(scope="module", params=SUITES)
def machine(request: pytest.FixtureRequest, machines: Mapping[str, Future[Machine]]) -> Machine:
    return machines[request.param].result()


@pytest.fixture
def found(machine: Machine) -> Iterator[dict[str, str]]:
    """The board's settings with the service running and nothing held; afterwards the service is as README left it."""
    found = machine.settings()
    yield found
    machine.say(f"rm -f {DROP_IN}; systemctl disable --now jetdvfsd.socket; systemctl reset-failed; systemctl restart jetdvfsd")


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


def can_hold(machine: Machine) -> bool:
    return machine.run(f"jetdvfs hold --config {LOW} -- true", ADMIN).returncode == 0


def holds_again(machine: Machine, holding: Mapping[str, str]) -> bool:
    """Whether a client that lost its daemon has its lease of the next one, and the board is as it was with the first."""
    return eventually(lambda: machine.settings() == holding, 30) and is_active(machine)


def test_the_service_runs_and_starts_at_boot(machine: Machine) -> None:
    assert is_active(machine), machine.journal()
    assert machine.say("systemctl is-enabled jetdvfsd") == "enabled"
    assert machine.service("NRestarts") == "0"
    assert "Traceback" not in machine.journal()


def test_the_package_says_everything_that_its_libraries_need(machine: Machine) -> None:
    # Debian 12 lists what is below /usr/lib as /lib, where it was before the two were merged.
    depends = machine.say("dpkg-query --show --showformat='${Depends}' jetdvfs")
    libraries = machine.say(
        "dpkg --listfiles jetdvfs | grep '\\.so$' | xargs ldd | sed -n 's/.*=> \\(\\/[^ ]*\\) .*/\\1/p' "
        "| grep -v /usr/lib/jetdvfs | xargs realpath | sed 's/^\\/usr//; p; s/^/\\/usr/' | sort -u "
        "| xargs dpkg --search 2>/dev/null | cut -d: -f1 | sort -u"
    ).split()
    assert libraries
    assert set(libraries) <= {word for part in depends.split(", ") for word in part.split()[:1]} | {"libgcc-s1"}


def test_manual_pages_and_completion_are_there(machine: Machine) -> None:
    listed = machine.say("dpkg --listfiles jetdvfs").splitlines()
    pages = ("man1/jetdvfs.1.gz", "man5/jetdvfsd.yaml.5.gz", "man8/jetdvfsd.8.gz")
    completion = (
        "bash-completion/completions/jetdvfs",
        "zsh/site-functions/_jetdvfs",
        "fish/vendor_completions.d/jetdvfs.fish",
    )
    assert {*(f"/usr/share/man/{page}" for page in pages), *(f"/usr/share/{path}" for path in completion)} <= set(listed)


def test_the_service_is_hardly_exposed(machine: Machine) -> None:
    done = machine.run("systemd-analyze security --no-pager --threshold=20 jetdvfsd.service")
    assert done.returncode == 0, done.stdout[-300:]


def test_a_member_of_the_group_holds_a_configuration(machine: Machine, found: dict[str, str]) -> None:
    with held(machine, f"--config {LOW}") as lease:
        assert lease["applied"]["verified"]
        assert machine.gpu_hz() == 675750000 and machine.settings() != found
        assert eventually(lambda: machine.service("StatusText") == "1 lease")
        (listed,) = json.loads(machine.say("jetdvfs status --json", ADMIN))["leases"]
        assert listed["lease"] == lease["lease"]
    assert eventually(lambda: machine.settings() == found)


def test_the_service_takes_over_the_lock_of_a_jetpack_7_board_and_gives_it_back(
    machine: Machine, found: dict[str, str]
) -> None:
    with machine.standing_on("emc-locked") as board:
        emc = board / "sys/kernel/debug/bpmp/debug/clk/emc"
        assert is_active(machine), machine.journal()
        assert (emc / "mrq_rate_locked").read_text().strip() == "1"
        with held(machine, "--config 1190.4,612,2133") as lease:
            assert lease["applied"]["verified"], lease["applied"]["notes"]
            assert (emc / "rate").read_text().strip() == "2133000000"
        top = ("1", "3199000000")
        assert eventually(lambda: tuple((emc / name).read_text().strip() for name in ("mrq_rate_locked", "rate")) == top)
    assert eventually(lambda: machine.settings() == found)


def test_the_service_sets_a_gpu_that_comes_while_its_clocks_are_held(machine: Machine, found: dict[str, str]) -> None:
    with machine.standing_on("late-gpu") as board:
        assert is_active(machine), machine.journal()
        devfreq = board / "sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu"
        with held(machine, "--config 1190.4,612,2133") as lease:
            assert lease["applied"]["notes"] == ["GPU clock: 612 MHz is set when its files come"]
            assert not devfreq.exists()
            (board / "sys/devices/platform/gpu.0/railgate_enable").write_text("0")
            assert eventually(lambda: devfreq.exists() and (devfreq / "cur_freq").read_text().strip() == "612000000")
            assert eventually(lambda: json.loads(machine.say("jetdvfs status --json"))["applied"]["verified"])
        assert "taken over" not in machine.journal()
    assert eventually(lambda: machine.settings() == found)


def test_a_member_holds_a_target_with_the_profile_configured(machine: Machine, found: dict[str, str]) -> None:
    machine.say(f"echo 'profile: agx-xavier-sim' > {DROP_IN} && systemctl restart jetdvfsd")
    with held(machine, f"{MODEL} --target latency_ms=20") as lease:
        assert lease["plan"]["target"] == "latency_ms=20"
        assert machine.gpu_hz() == lease["plan"]["choice"]["configuration"]["gpu_hz"]
        assert machine.settings() != found
    assert eventually(lambda: machine.settings() == found)


@pytest.mark.parametrize("verb", ["status", f"hold --config {LOW} -- true"])
def test_somebody_outside_the_group_is_told_how_to_join_it(machine: Machine, verb: str) -> None:
    done = machine.run(f"jetdvfs {verb}", OUTSIDER)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "permission denied on /run/jetdvfs/jetdvfs.sock: join the group jetdvfs with 'sudo usermod" in done.stderr


def test_the_doctor_says_what_is_wrong_to_whoever_asks(machine: Machine, found: dict[str, str]) -> None:
    for user in (ADMIN, "root"):
        assert machine.run("jetdvfs doctor", user).returncode == 0
    outside = machine.run("jetdvfs doctor", OUTSIDER)
    assert outside.returncode == 3
    assert "sudo usermod -aG jetdvfs outsider, then log in again" in outside.stdout
    machine.say("systemctl disable --now jetdvfsd")
    stopped = machine.run("jetdvfs doctor", ADMIN)
    assert stopped.returncode == 6
    assert "sudo systemctl start jetdvfsd" in stopped.stdout and "sudo systemctl enable jetdvfsd" in stopped.stdout
    machine.say("systemctl enable jetdvfsd")


def test_a_configuration_that_is_wrong_is_told_and_keeps_the_service_from_starting_once(
    machine: Machine, found: dict[str, str]
) -> None:
    machine.say(f"printf 'axes: [npu]\\nbord: x\\n' > {DROP_IN}")
    checked = machine.run("jetdvfs config check", ADMIN)
    assert checked.returncode == 2
    assert f"{DROP_IN}, line 1: axes[0]: expected cpu, gpu or emc, got 'npu'" in checked.stdout
    machine.run("systemctl restart jetdvfsd")
    assert eventually(lambda: machine.service("ActiveState") == "failed")
    assert machine.service("NRestarts") == "0"
    assert "jetdvfsd.service is failed" in machine.run("jetdvfs doctor", ADMIN).stdout


def test_a_reload_takes_new_limits_and_keeps_the_lease(machine: Machine, found: dict[str, str]) -> None:
    process = machine.service("MainPID")
    with held(machine, f"--config {LOW}"):
        machine.say(f"echo 'limits: {{gpu_hz: {{max: 522750000}}}}' > {DROP_IN} && systemctl reload jetdvfsd")
        assert eventually(lambda: machine.gpu_hz() == 522750000), machine.journal()
        machine.say(f"rm {DROP_IN} && systemctl reload jetdvfsd")
        assert eventually(lambda: machine.gpu_hz() == 675750000), machine.journal()
    assert eventually(lambda: machine.settings() == found)
    assert machine.service("MainPID") == process


def test_a_reload_of_a_configuration_that_is_wrong_changes_nothing(machine: Machine, found: dict[str, str]) -> None:
    with held(machine, f"--config {LOW}"):
        machine.say(f"echo 'limits: 5' > {DROP_IN} && systemctl reload jetdvfsd")
        assert eventually(lambda: f"{DROP_IN}, line 1: limits: expected a mapping, got 5" in machine.journal())
        assert is_active(machine) and machine.gpu_hz() == 675750000


def test_a_daemon_that_is_killed_gives_the_board_back_and_starts_again(machine: Machine, found: dict[str, str]) -> None:
    with held(machine, f"--config {LOW}"):
        holding = machine.settings()
        machine.say("systemctl kill --kill-who=main --signal=KILL jetdvfsd")
        assert eventually(lambda: machine.settings() == found, 10), machine.journal()
        assert holds_again(machine, holding), machine.journal()
    assert machine.service("NRestarts") == "1"
    assert eventually(lambda: machine.settings() == found)


def test_a_daemon_that_hangs_is_ended_by_the_watchdog_and_starts_again(machine: Machine, found: dict[str, str]) -> None:
    with held(machine, f"--config {LOW}"):
        holding = machine.settings()
        machine.say("systemctl kill --kill-who=main --signal=STOP jetdvfsd")
        assert eventually(lambda: machine.settings() == found, 20), machine.journal()
        assert holds_again(machine, holding), machine.journal()
    assert machine.service("NRestarts") == "1"
    assert "Watchdog timeout" in machine.journal()
    assert eventually(lambda: machine.settings() == found)


def test_a_machine_that_sleeps_wakes_with_the_clocks_that_are_held(machine: Machine, found: dict[str, str]) -> None:
    """As far as a container sleeps: its service is frozen, and what the firmware of a board forgets is put back meanwhile."""
    with held(machine, f"--config {LOW}"):
        holding = machine.settings()
        machine.say("systemctl freeze jetdvfsd")
        machine.set_settings(found)
        time.sleep(1)
        machine.say("systemctl thaw jetdvfsd")
        assert eventually(lambda: machine.settings() == holding, 20), machine.journal()
        assert is_active(machine)
    assert eventually(lambda: machine.settings() == found)


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
        assert is_active(machine)
        holding = machine.settings()
        machine.say("systemctl restart jetdvfsd")
        assert holds_again(machine, holding), machine.journal()
    assert eventually(lambda: machine.settings() == found)
    assert machine.say("stat --format='%A %U %G %i' /run/jetdvfs/jetdvfs.sock") == socket


def test_varlinkctl_describes_and_calls_the_daemon(machine: Machine) -> None:
    if machine.run("command -v varlinkctl").returncode != 0:
        pytest.skip("this systemd has no varlinkctl")
    assert "io.jetdvfs" in machine.say(f"varlinkctl info {VARLINK}", ADMIN)
    assert "method Hold(" in machine.say(f"varlinkctl introspect {VARLINK} io.jetdvfs", ADMIN)
    answer = json.loads(machine.say(f"varlinkctl call --json=short {VARLINK} io.jetdvfs.Status '{{}}'", ADMIN))
    assert answer["status"]["board"] == "agx-xavier"
    assert machine.run(f"varlinkctl info {VARLINK}", OUTSIDER).returncode != 0


def test_the_varlink_library_of_python_describes_and_calls_the_daemon(machine: Machine) -> None:
    machine.say("python3 -m venv ~/varlink && ~/varlink/bin/pip install --quiet varlink", ADMIN)
    program = (
        f'import varlink; client = varlink.Client("{VARLINK}"); daemon = client.open("io.jetdvfs"); '
        'print(daemon.Status()["status"]["board"])'
    )
    assert machine.say(f"~/varlink/bin/python -c '{program}'", ADMIN) == "agx-xavier"


def test_an_upgrade_gives_the_board_back_and_the_new_version_serves(machine: Machine, found: dict[str, str]) -> None:
    older, newer = "/tmp/older.deb", "/srv/jetdvfs/dist/jetdvfs_*.deb"
    machine.say(
        f"dpkg-deb --raw-extract {newer} /tmp/older && sed -i 's/^Version: .*/Version: 0.0.1/' /tmp/older/DEBIAN/control "
        f"&& dpkg-deb -Znone --build /tmp/older {older} && apt-get install -y --allow-downgrades {older}"
    )
    machine.say(f"echo 'limits: {{gpu_hz: {{max: 905250000}}}}' > {DROP_IN} && systemctl restart jetdvfsd")
    process = machine.service("MainPID")
    with held(machine, f"--config {LOW}"):
        holding = machine.settings()
        machine.say(f"dpkg --unpack {newer}")
        assert machine.settings() == found
        machine.say("dpkg --configure jetdvfs")
        assert holds_again(machine, holding), machine.journal()
    assert machine.service("MainPID") != process
    assert machine.say("systemctl is-enabled jetdvfsd") == "enabled"
    assert machine.run(f"test -e {DROP_IN}").returncode == 0
    assert eventually(lambda: machine.settings() == found)


def test_an_upgrade_to_a_daemon_that_does_not_start_leaves_the_earlier_one_serving(
    machine: Machine, found: dict[str, str]
) -> None:
    learned, installed = "/var/lib/jetdvfs/learned-before", "/srv/jetdvfs/dist/jetdvfs_*.deb"
    machine.say(
        f"dpkg-deb --raw-extract {installed} /tmp/broken && sed -i 's/^Version: .*/Version: 99/' /tmp/broken/DEBIAN/control "
        "&& printf '#!/bin/sh\\nexit 1\\n' > /tmp/broken/usr/bin/jetdvfsd "
        f"&& dpkg-deb -Znone --build /tmp/broken /tmp/broken.deb && touch {learned}"
    )
    machine.say(f"echo 'limits: {{gpu_hz: {{max: 905250000}}}}' > {DROP_IN} && systemctl restart jetdvfsd")
    version = machine.say("dpkg-query --show --showformat='${Version}' jetdvfs")
    back = f"'jetdvfs doctor' names the reason; to go back: apt-get install --allow-downgrades ./jetdvfs_{version}_*.deb"
    with held(machine, f"--config {LOW}"):
        holding = machine.settings()
        for _ in range(2):  # the second finds one in between that did not start
            upgrade = machine.run("apt-get install -y --reinstall /tmp/broken.deb")
            assert upgrade.returncode == 0
            said = upgrade.stdout + upgrade.stderr
            assert f"the new daemon does not start; that of {version} serves until the next boot" in said and back in said
            assert holds_again(machine, holding), machine.journal()
        machine.say(f"apt-get install -y --allow-downgrades {installed}")
        assert holds_again(machine, holding), machine.journal()
        assert machine.run("ls -d /usr/lib/jetdvfs-previous /run/systemd/system/jetdvfsd.service.d/previous.conf").stdout == ""
        machine.say(f"echo 'limits: 7' > {DROP_IN}")  # with which no version starts
        upgrade = machine.run("apt-get install -y /tmp/broken.deb")
        assert upgrade.returncode == 0 and back in upgrade.stdout + upgrade.stderr
        assert machine.settings() == found and not is_active(machine)
        machine.say(f"echo 'limits: {{gpu_hz: {{max: 905250000}}}}' > {DROP_IN}")
        machine.say(f"apt-get install -y --allow-downgrades {installed}")
        assert holds_again(machine, holding), machine.journal()
    assert machine.run(f"test -e {DROP_IN} && rm {learned}").returncode == 0
    assert eventually(lambda: machine.settings() == found)


def test_removal_gives_the_board_back_and_leaves_the_configuration(machine: Machine, found_at_last: dict[str, str]) -> None:
    with held(machine, f"--config {LOW}"):
        assert machine.settings() != found_at_last
        machine.say("systemctl enable jetdvfsd.socket && apt-get remove -y jetdvfs")
        assert machine.settings() == found_at_last
    assert machine.run("command -v jetdvfs jetdvfsd").returncode != 0
    assert machine.run("systemctl cat jetdvfsd").returncode != 0
    assert machine.say("ls /etc/jetdvfs") == "jetdvfsd.yaml\njetdvfsd.yaml.d"
    assert machine.run("find /usr/lib/jetdvfs /usr/lib/python3/dist-packages/jetdvfs").stdout == ""


def test_purging_leaves_what_others_wrote_and_nothing_else(machine: Machine) -> None:
    machine.say(f"touch {DROP_IN} && apt-get purge -y jetdvfs")
    left = machine.run(
        "find /etc /var /run -name 'jetdvfs*' -not -path '/var/log/*' -not -path '/var/lib/apt/*'"
    ).stdout.split()
    assert {path for path in left if "/dpkg/" not in path} == {"/etc/jetdvfs", "/etc/jetdvfs/jetdvfsd.yaml.d"}
    assert machine.say("ls /etc/jetdvfs/jetdvfsd.yaml.d") == Path(DROP_IN).name
    machine.say("rm -r /etc/jetdvfs")
    assert machine.run("getent group jetdvfs").returncode != 0


def test_make_install_and_uninstall_do_without_a_package(machine: Machine, found_at_last: dict[str, str]) -> None:
    before = machine.say(
        "find / -xdev -path /proc -prune -o -path /srv -prune -o -path /usr/local -print -o -name '*jetdvfs*' -print"
    )
    said = machine.say("cd /srv/jetdvfs && make install")
    assert said.count("\n") < 5, said
    machine.say("systemctl enable --now jetdvfsd && usermod -aG jetdvfs admin")
    assert eventually(lambda: is_active(machine), 15), machine.journal()
    assert machine.run("jetdvfs doctor", ADMIN).returncode == 0
    with held(machine, f"--config {LOW}"):
        assert machine.settings() != found_at_last
        machine.say("cd /srv/jetdvfs && make uninstall")
        assert machine.settings() == found_at_last
    after = machine.say(
        "find / -xdev -path /proc -prune -o -path /srv -prune -o -path /usr/local -print -o -name '*jetdvfs*' -print"
    )
    assert set(after.splitlines()) - set(before.splitlines()) <= {
        "/etc/jetdvfs",
        "/etc/jetdvfs/jetdvfsd.yaml",
        "/etc/jetdvfs/jetdvfsd.yaml.d",
    }
    assert machine.run("getent group jetdvfs").returncode != 0


@pytest.fixture
def found_at_last(machine: Machine) -> dict[str, str]:
    """The board's settings with nothing held, by tests after which there is no service any more."""
    return machine.settings()
