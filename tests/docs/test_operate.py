# SPDX-License-Identifier: Apache-2.0
"""Metrics, alerts and message identifiers of docs/operate.md and of the files next to it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from jetdvfs.daemon.cli.prometheus import METRICS
from jetdvfs.daemon.system.journal import KINDS
from jetdvfs.tests.support.paths import DOCS

PAGE = (DOCS / "operate.md").read_text(encoding="utf-8")
RULES = DOCS / "deploy" / "prometheus" / "jetdvfs.rules.yml"
DASHBOARD = DOCS / "deploy" / "grafana" / "jetdvfs.json"
EXPORTED = {metric.name for metric in METRICS}
METRIC = re.compile(r"\bjetdvfs_[a-z_]+")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


@pytest.mark.parametrize("text", [" ".join(rule["expr"] for rule in rules()), DASHBOARD.read_text(encoding="utf-8"), PAGE])
def test_every_metric_that_is_named_is_exported(text: str) -> None:
    named = set(METRIC.findall(text))
    assert named and named <= EXPORTED


def test_every_metric_is_watched_by_a_rule_or_on_the_dashboard() -> None:
    watched = set(METRIC.findall(RULES.read_text(encoding="utf-8") + DASHBOARD.read_text(encoding="utf-8")))
    assert EXPORTED - watched <= {
        "jetdvfs_clock_changes_seconds_total",
        "jetdvfs_energy_joules_total",
        "jetdvfs_lease_held_seconds",
    }


def test_every_alert_has_its_remedy_on_the_page_and_the_other_way_round() -> None:
    named = [rule["alert"] for rule in rules() if "alert" in rule]
    assert set(re.findall(r"^- `(Jetdvfs\w+)`: \S", PAGE, re.MULTILINE)) == set(named)
    assert all(rule["annotations"]["summary"] for rule in rules() if "alert" in rule)


def test_prometheus_takes_the_rules_and_they_fire_when_they_should(tmp_path: Path) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool, of Debian's package prometheus")
    cases = Path(__file__).with_name("jetdvfs.rules.test.yml").read_text(encoding="utf-8")
    (tmp_path / "cases.yml").write_text(cases.replace("[RULES]", json.dumps([str(RULES)])))
    for verb, path in (("check", RULES), ("test", tmp_path / "cases.yml")):
        done = subprocess.run([program, verb, "rules", path], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    fired = {
        one["alertname"] for test in yaml.safe_load(cases)["tests"] for one in test["alert_rule_test"] if one["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules() if "alert" in rule}


def test_panels_of_the_dashboard_are_complete_and_do_not_overlap() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["datasource"]["uid"] == "${datasource}" and panel["targets"] and panel["title"] for panel in panels)
    assert {one["name"] for one in dashboard["templating"]["list"]} == {"datasource", "instance"}
    squares = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(squares)) == len(squares) and max(x for x, _ in squares) < 24


def test_every_message_identifier_has_its_line_and_the_other_way_round() -> None:
    assert set(re.findall(r"^- `([0-9a-f]{32})`: \S", PAGE, re.MULTILINE)) == set(KINDS)
