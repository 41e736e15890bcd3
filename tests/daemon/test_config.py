# SPDX-License-Identifier: Apache-2.0
"""The operator's configuration, and the policy by which leases are put together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetdvfs.daemon.config import ClientLimits, Config, ConfigFile, Members, WorkerRules, load_config, read_config
from jetdvfs.daemon.errors import LimitReached, NotPermitted, UsageError
from jetdvfs.daemon.hardware.clocks.driver import Clusters
from jetdvfs.daemon.leases.lease import Holder, LeaseBook, LeaseLimits, combine, find, raised_by
from jetdvfs.daemon.planning.lease_plan import LeasePlan
from jetdvfs.daemon.planning.limits import ClockBounds, ClockLimits
from jetdvfs.kernels.grid import FrequencyConfiguration


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "jetdvfsd.yaml"
    path.write_text(text)
    return load_config(path)


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Config()


def test_every_member_is_read(tmp_path: Path) -> None:
    text = """
board: agx-xavier
profile: mine
socket_group: video
axes: [gpu, cpu]
cpu_clusters: apart
cpu_leader: policy4
limits: {cpu_khz: {min: 499200, max: 2265600}, emc_hz: {min: 800000000}}
clients: {connections: 9, leases: 8, networks: 7}
worker: {parallel: 1, threads: 3, timeout_s: 5}
"""
    config = load(tmp_path, text)
    assert (config.board, config.profile, config.socket_group) == ("agx-xavier", "mine", "video")
    assert config.axes == {"cpu", "gpu"}
    assert config.limits == ClockLimits(cpu_khz=ClockBounds(499200, 2265600), emc_hz=ClockBounds(800000000, None))
    assert config.clients == ClientLimits(connections=9, leases=8, networks=7)
    assert config.worker == WorkerRules(parallel=1, threads=3, timeout_s=5)
    assert config.clusters == Clusters(apart=True, leader="policy4")
    assert config.warnings == ()


def test_unknown_members_are_refused_by_their_full_name(tmp_path: Path) -> None:
    path = tmp_path / "jetdvfsd.yaml"
    path.write_text("limits: {gpu_hz: {maximum: 5}, npu_hz: {max: 1}}\nworker: {user: x}\nbord: x\n")
    assert [str(one).split(": ")[1:] for one in read_config(path).problems] == [
        ["bord", "unknown member; did you mean board? valid", ", ".join(Members.__struct_fields__)],
        ["limits.npu_hz", "unknown member; did you mean limits.gpu_hz? valid", "cpu_khz, gpu_hz, emc_hz"],
        ["limits.gpu_hz.maximum", "unknown member; did you mean limits.gpu_hz.max? valid", "min, max"],
        ["worker.user", "unknown member; valid", "parallel, threads, timeout_s"],
    ]
    with pytest.raises(UsageError, match=r"line 3: bord: unknown member; did you mean board\?"):
        load_config(path)


def test_a_reload_with_an_unknown_member_keeps_the_configuration_in_force(tmp_path: Path) -> None:
    path = tmp_path / "jetdvfsd.yaml"
    path.write_text("ceiling_c: 60\n")
    file = ConfigFile(path)
    path.write_text("ceiling: 70\n")
    with pytest.raises(UsageError, match="did you mean ceiling_c"):
        file.reload()
    assert file.started.ceiling_c == 60
    assert "the one before stays in force" in file.notes[0]
    path.write_text("ceiling_c: 70\n")
    assert file.reload().ceiling_c == 70 and file.notes == ()


def test_members_left_empty_have_their_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "board:\nlimits:\nclients: {leases: }\nworker:\nfloors: auto\n") == Config()
    assert load(tmp_path, "floors: off").floors is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", ": expected a mapping, got []"),
        ("board: 5", ", line 1: board: expected a text, got 5"),
        ("axes: gpu", ", line 1: axes: expected a list, got 'gpu'"),
        ("axes: [npu]", ", line 1: axes[0]: expected cpu, gpu or emc, got 'npu'"),
        ("cpu_clusters: alone", ", line 1: cpu_clusters: expected together or apart, got 'alone'"),
        ("cpu_leader: 4", ", line 1: cpu_leader: expected a text, got 4"),
        ("limits: 5", ", line 1: limits: expected a mapping, got 5"),
        ("limits: {gpu_hz: 5}", ", line 1: limits.gpu_hz: expected a mapping, got 5"),
        ("limits:\n  gpu_hz:\n    max: fast", ", line 3: limits.gpu_hz.max: expected a positive whole number, got 'fast'"),
        ("limits: {gpu_hz: {max: 0}}", ", line 1: limits.gpu_hz.max: expected a positive whole number, got 0"),
        ("limits: {gpu_hz: {min: 9, max: 8}}", ", line 1: limits.gpu_hz: expected min not above max, got 9 > 8"),
        ("board: x\nclients: {leases: 0}", ", line 2: clients.leases: expected a whole number from 1 to 10000, got 0"),
        ("clients: {leases: true}", ", line 1: clients.leases: expected a whole number from 1 to 10000, got True"),
        ("worker: {timeout_s: 1.5}", ", line 1: worker.timeout_s: expected a whole number from 1 to 10000, got 1.5"),
        (
            "default: fastest",
            ", line 1: default: configuration 'fastest': expected CPU,GPU,EMC in MHz, for instance 2265.6,1377,2133",
        ),
        (
            "default: 612",
            ", line 1: default: expected max, min, CPU,GPU,EMC in MHz, or a mapping with model and target, got 612",
        ),
        ("floors: maybe", ", line 1: floors: expected auto, off or a mapping, got 'maybe'"),
        ("floors: {pressure: 2}", ", line 1: floors.pressure: expected a number above 0, at most 1, got 2"),
        ("a:\n- [", ", line 2: not valid YAML: "),
        ("\x00", ": not valid YAML: "),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line_naming_file_line_and_member(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(f"configuration {tmp_path / 'jetdvfsd.yaml'}{said}")
    assert "\n" not in str(caught.value)


def need(*clocks: int) -> LeasePlan:
    return LeasePlan(FrequencyConfiguration(*clocks))


def holder(connection: str = "a", uid: int = 1000) -> Holder:
    return Holder(connection, 1, uid, "app")


configurations = st.builds(FrequencyConfiguration, *[st.integers(1, 9)] * 3)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(st.lists(configurations, min_size=1, max_size=6))
def test_no_lease_gets_less_than_it_needs_and_the_order_does_not_matter(wanted: list[FrequencyConfiguration]) -> None:
    together = combine([LeasePlan(one) for one in wanted])
    assert all(have >= want for one in wanted for have, want in zip(together, one, strict=True))
    assert all(any(one[axis] == together[axis] for one in wanted) for axis in range(3))
    assert together == combine([LeasePlan(one) for one in reversed(wanted)])


def test_a_lease_says_which_others_raise_it() -> None:
    leases = LeaseBook()
    low, high, other = (leases.new(holder(), need(*clocks), "", 0.0) for clocks in ((1, 1, 1), (2, 1, 1), (1, 1, 1)))
    for lease in (low, high, other):
        leases.add(lease)
    assert raised_by(low, leases) == [high.id]
    assert raised_by(high, leases) == []


def test_leases_are_bounded_in_total_and_per_connection() -> None:
    leases = LeaseBook(LeaseLimits(total=3, per_connection=2))
    for connection in ("a", "a", "b"):
        leases.add(leases.new(holder(connection), need(1, 1, 1), "", 0.0))
    with pytest.raises(LimitReached):
        leases.new(holder("c"), need(1, 1, 1), "", 0.0)
    leases.remove(leases.of("b")[0])
    with pytest.raises(LimitReached):
        leases.new(holder("a"), need(1, 1, 1), "", 0.0)


def test_one_user_s_leases_leave_others_theirs_and_everybody_s_leave_root_s() -> None:
    leases = LeaseBook(LeaseLimits(total=16, per_user=8, per_connection=8))

    def taken(uid: int) -> int:
        """How many this user gets until there are no more."""
        for number in range(20):
            try:
                leases.add(leases.new(holder(f"{uid} {number}", uid), need(1, 1, 1), "", 0.0))
            except LimitReached:
                return number
        return 20

    assert taken(1000) == 8
    assert taken(1001) == 6
    assert taken(1002) == 0
    assert taken(0) == 2


def test_few_leases_are_for_everybody() -> None:
    leases = LeaseBook(LeaseLimits(total=2))
    for _ in range(2):
        leases.add(leases.new(holder(), need(1, 1, 1), "", 0.0))
    with pytest.raises(
        LimitReached, match="2 leases are held, 2 of them by uid 1000, 2 by this connection; at most 2, 16 and 8"
    ):
        leases.new(holder(), need(1, 1, 1), "", 0.0)


def test_a_lease_is_its_user_s_or_root_s_to_end() -> None:
    leases = LeaseBook()
    lease = leases.new(holder(uid=1000), need(1, 1, 1), "", 0.0)
    leases.add(lease)
    assert find(leases.by_id(), lease.id, uid=1000) is find(leases.by_id(), lease.id, uid=0) is lease
    with pytest.raises(NotPermitted):
        find(leases.by_id(), lease.id, uid=1001)
    with pytest.raises(UsageError, match=f"held: {lease.id}"):
        find(leases.by_id(), "nothing", uid=0)


def stacked(tmp_path: Path, text: str, **drop_ins: str) -> Path:
    path = tmp_path / "jetdvfsd.yaml"
    if text:
        path.write_text(text)
    (tmp_path / "jetdvfsd.yaml.d").mkdir()
    for name, said in drop_ins.items():
        (tmp_path / "jetdvfsd.yaml.d" / f"{name}.yaml").write_text(said)
    return path


def test_drop_ins_say_the_last_word_member_by_member_in_the_order_of_their_names(tmp_path: Path) -> None:
    text = "profile: mine\nlimits: {cpu_khz: {min: 500000, max: 900000}}\naxes: [cpu, gpu]\nfloors: off\n"
    path = stacked(
        tmp_path, text, b20="limits: {cpu_khz: {max: 700000}}\naxes: [emc]", b10="limits: {cpu_khz: {max: 600000}}", empty=""
    )
    (tmp_path / "jetdvfsd.yaml.d" / "b30.yaml.off").write_text("board: [")
    config = load_config(path)
    assert config.limits.cpu_khz == ClockBounds(500000, 700000)
    assert (config.profile, config.floors) == ("mine", None) and config.axes == {"emc"}


def test_a_drop_in_gives_a_member_its_default_again_by_leaving_it_empty(tmp_path: Path) -> None:
    text = "profile: mine\nlimits: {cpu_khz: {min: 500000}}\nfloors: off"
    assert load_config(stacked(tmp_path, text, a="profile:\nlimits:\nfloors: auto")) == Config()


def test_a_mistake_is_told_by_the_file_that_it_was_made_in(tmp_path: Path) -> None:
    path = stacked(tmp_path, "board: x\n", a="\nlimits: {gpu_hz: 5}\n")
    with pytest.raises(UsageError, match=r"/a\.yaml, line 2: limits\.gpu_hz: expected a mapping, got 5$"):
        load_config(path)


def test_files_that_are_right_alone_and_wrong_together_are_told_by_the_last_of_them(tmp_path: Path) -> None:
    path = stacked(tmp_path, "limits: {cpu_khz: {min: 800000}}\n", a="profile: x\n", b="limits:\n  cpu_khz:\n    max: 700000\n")
    with pytest.raises(
        UsageError, match=r"/b\.yaml, line 2: limits\.cpu_khz: expected min not above max, got 800000 > 700000$"
    ):
        load_config(path)


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = "board: 5\nclients: {leases: 0, connections: x}\nbord: y\nprofile: a\nprofile: b\n"
    reading = read_config(
        stacked(tmp_path, text, a="axes: [npu]", b="a: [", c="limits: {gpu_hz: {min: 200000000, max: 100000000}}")
    )
    assert [f"{one.path.name} {one.line} {one.text.partition(':')[0]}" for one in reading.problems] == [
        "b.yaml 1 not valid YAML",
        "jetdvfsd.yaml 1 board",
        "jetdvfsd.yaml 2 clients.connections",
        "jetdvfsd.yaml 2 clients.leases",
        "jetdvfsd.yaml 3 bord",
        "a.yaml 1 axes[0]",
        "c.yaml 1 limits.gpu_hz",
    ]
    assert [str(one).partition("; known")[0].rpartition("/")[2] for one in reading.warnings] == [
        "jetdvfsd.yaml, line 5: profile is given twice; this one counts",
    ]
    with pytest.raises(UsageError, match=r"and 6 more; jetdvfs config check lists them"):
        load_config(tmp_path / "jetdvfsd.yaml")


def test_drop_ins_are_read_without_the_file_beside_them_unless_it_is_asked_for_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stacked(tmp_path, "", a="profile: mine")
    monkeypatch.setattr("jetdvfs.daemon.config.DEFAULT_PATH", path)
    assert load_config(None).profile == "mine"
    with pytest.raises(UsageError, match=r"jetdvfsd\.yaml: No such file"):
        load_config(path)


def test_an_alias_that_holds_itself_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, "limits: &a {gpu_hz: *a}")
    assert "\n" not in str(caught.value)
