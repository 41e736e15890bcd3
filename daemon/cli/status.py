# SPDX-License-Identifier: Apache-2.0
"""Show the clocks, leases, power and temperatures, and each reason why the daemon is degraded.

--learned shows the observations that the daemon remembers of your models and applications; --forget drops them. Root sees and
drops those of all users. --prometheus prints the figures for Prometheus, or writes them into a textfile.

examples:
  jetdvfs status --why
  jetdvfs status --watch 1
  jetdvfs status --learned
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...kernels.text import counted, printable
from ...kernels.units import CLOCKS, KHZ_PER_MHZ, mhz, mhz_text
from .. import arguments
from ..errors import UsageError
from ..wire.client import Client
from . import output
from . import prometheus as metrics
from .output import BoldText, RedText, shown


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--learned", nargs="?", const="", metavar="MODEL", help="observations of all models and applications, or of this one"
    )
    parser.add_argument("--why", action="store_true", help="show why each clock is not higher")
    parser.add_argument("--forget", action="store_true", help="with --learned: drop it")
    parser.add_argument("--watch", type=float, metavar="S", help="show it again every S seconds, until interrupted")
    metrics.configure(parser)
    arguments.add_json(parser)
    arguments.add_socket(parser)


def run(args: argparse.Namespace) -> int:
    if args.prometheus:
        if args.learned is not None or args.forget or args.watch is not None:
            raise UsageError("--prometheus: not with --learned, --forget or --watch")
        return metrics.run(args)
    if args.textfile is not None or args.describe:
        raise UsageError("--textfile and --describe need --prometheus")
    if args.forget and args.learned is None:
        raise UsageError("--forget needs --learned: jetdvfs status --learned [MODEL] --forget")
    with Client(args.socket) as client:
        if args.learned is not None:
            return _learned(client, args)
        if args.watch is not None and not 0.1 <= args.watch <= 3600:
            raise UsageError(f"--watch {args.watch:g}: expected 0.1 to 3600 seconds")
        if args.why:
            status = client.status()
            output.answer(args, {"slow": status["slow"]}, "\n".join(map(printable, why(status))))
            return 0
        if args.watch is None:
            status = client.status()
            output.answer(args, status, _text(status))
            return 0
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                status = client.status()
                print(json.dumps(status) if args.json else f"{_text(status)}\n", flush=True)
                time.sleep(args.watch)
    return 0


def _text(status: Mapping[str, Any]) -> str:
    return "\n".join(map(shown, _lines(status)))


def _learned(client: Client, args: argparse.Namespace) -> int:
    known = client.learned()
    # A model's file is known by its name without the suffix, an application by its name.
    names = (args.learned, Path(args.learned).stem) if args.learned else ()
    remembered = {one["name"] or one["app"] for one in known}
    name = next((one for one in names if one in remembered), None)
    if names and name is None:
        others = ", ".join(sorted(remembered)) or "nothing"
        raise UsageError(f"nothing is remembered of {args.learned}; remembered: {others}")
    found = [one for one in known if name is None or (one["name"] or one["app"]) == name]
    if args.forget:
        dropped = client.forget(name)
        output.answer(args, {"forgotten": dropped}, f"forgotten: {counted(dropped, 'program')}")
    elif args.json:
        output.print_json({"programs": found})
    elif not found:
        print("nothing is remembered")
    else:
        headers = ["model", "application", "uid", "frames", "clocks", "last seen", "against the prediction"]
        print(output.table(headers, [_program(one) for one in found], text_columns=2))
    return 0


def _program(one: Mapping[str, Any]) -> list[str]:
    seen = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["seen_s"]))
    factor = "not predicted" if one["factor"] is None else f"{one['factor']:.2f} times"
    return [one["name"] or "-", one["app"], str(one["uid"]), f"{one['frames']:,}", str(one["configurations"]), seen, factor]


def why(status: Mapping[str, Any]) -> Iterator[str]:
    for axis, name in (*CLOCKS.items(), (None, "all clocks")):
        reasons = [one for one in status["slow"] if one["axis"] == axis]
        if axis is not None:
            measured = status["configuration"]
            clock = f"{mhz(axis, measured[axis]):.1f} MHz" if measured else "cannot be read"
            yield f"{name}  {clock}{output.age(status)}{'' if reasons else ': nothing keeps it down'}"
        elif reasons:
            yield name
        for one in reasons:
            most = f"at most {mhz_text(axis, one['level'])} MHz: " if axis is not None and one["level"] else ""
            yield f"     {most}{one['reason']}"


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    profile = status["profile"]
    yield f"board      {status['title']} ({status['board']})"
    if profile is None:
        yield "profile    none: configurations can be held, nothing can be predicted"
    else:
        yield f"profile    {profile['name']}{', measured on a simulated board' if profile['simulated'] else ''}"
    yield f"clocks     {_clocks(status)}{output.age(status)}"
    if engines := status.get("engines_hz"):
        yield f"engines    {', '.join(f'{name} {hz / 1e6:.0f} MHz' if hz else f'{name} off' for name, hz in engines.items())}"
    if len(status["cpu_policies"]) > 1:
        yield f"clusters   {', '.join(map(_policy, status['cpu_policies']))}"
    applied = status["applied"]
    if applied is not None:
        if not applied["verified"]:
            yield f"requested  {output.clocks(applied['requested'], applied.get('governed', ()))}"
            yield f"accepted   {output.clocks(applied['accepted'], applied.get('governed', ()))}"
        yield f"because    {applied['reason']}"
        changes = status["changes"]
        yield f"changes    {changes['count']}, {changes['total_ms']:.0f} ms in total"
    rails = ", ".join(f"{name} {power / 1e3:.2f} W" for name, power in status["rails_mw"].items())
    yield f"power      {output.power(status['rails_mw'], status['energy_rails'])}; {rails or 'no rail can be read'}"
    hottest = sorted(status["temperatures_mc"].items(), key=lambda item: -item[1])
    yield f"heat       {', '.join(f'{name} {value / 1e3:.1f} C' for name, value in hottest) or 'no zone can be read'}"
    if budget := status.get("budget"):
        yield f"budget     {budget['limit_mw'] / 1e3:.2f} W {budget['reason']}"
    if battery := status.get("battery"):
        yield f"battery    {output.battery(battery)}"
    if status["mode"]:
        yield f"mode       {status['mode']['id']} {status['mode']['name']}"
    if events := status["over_current"]:
        counts = (f"{one['event']} {one['count']} ({one['per_minute']:.3g} a minute)" for one in events)
        yield f"events     over-current since boot: {', '.join(counts)}"
    for reason in status["throttled"]:
        yield f"throttled  {reason}: the kernel lowers clocks until it is cooler"
    yield f"baseline   {'kept, to be restored' if status['baseline'] == 'held' else 'nothing to restore'}"
    for floor in status["floors"]:
        yield f"kept up    {floor['reason']}"
    for reason in status["degraded"]:
        if reason.removeprefix("throttled: ") not in status["throttled"]:
            yield f"degraded   {reason}"
    yield f"leases     {len(status['leases']) or 'none'}"
    for lease in status["leases"]:
        yield from _lease(lease)


def _lease(lease: Mapping[str, Any]) -> Iterator[str]:
    network = f"{lease['network']} at " if lease["network"] else ""
    asked = f"{network}{lease['target']}" if lease["target"] else "configuration"
    rate = f", {lease['fps']:g} frames/s" if lease["fps"] else ""
    by = f"{lease['app']} (pid {lease['pid']}, uid {lease['uid']}), {lease['held_s']:.0f} s"
    yield BoldText(f"  {lease['lease']}: {by}, {asked}{rate}")
    if lease["reason"]:
        yield f"     reason: {lease['reason']}"
    yield f"     needs {output.clocks(lease['configuration'], lease.get('governed', ()))}"
    if standby := lease.get("standby"):
        state = "in standby, as no frames come" if standby["now"] else "not in standby"
        back = f"; its clocks were back in {standby['back_ms']:.0f} ms" if standby["back_ms"] else ""
        yield f"     {state}: {standby['count']} time{'s' * (standby['count'] > 1)}, {standby['total_s']:.0f} s{back}"
    if lease["raised_by"]:
        yield f"     raised by lease {', '.join(lease['raised_by'])}"
    if shared := lease.get("shared"):
        yield f"     shares the GPU with lease {', '.join(shared['leases'])}: up to {shared['latency_ms']:.2f} ms with waiting"
    if unkept := lease.get("unkept"):
        yield RedText(f"     not kept: {unkept['target']}: {unkept['reason']}")
    if lease["predicted"]:
        foreseen = lease["predicted"]
        corrected = lease.get("corrected")
        used = f", corrected by {corrected['frames']:,} frames of {corrected['app']}" if corrected else ""
        yield f"     predicted {foreseen['latency_ms']:.2f} ms, {foreseen['energy_mj']:.1f} mJ per inference{used}"
    if why := lease.get("why"):
        yield f"     why: {why}"
    yield from _guessed(lease)
    if proposal := lease.get("proposal"):
        yield f"     better: {proposal['note']}"
    if end := lease.get("boundary"):
        yield f"     planned for a part of the network: up to {end['operator']} at {end['place']}"
    if lease["observed"]:
        seen = lease["observed"]
        yield f"     observed p50 {seen['p50_ms']:.2f} ms, p95 {seen['p95_ms']:.2f} ms over {seen['frames']} frames"
        if lease["first_ms"] is not None:
            first = f"{lease['first_ms']:.2f} ms, {lease['first_frames']} times"
            yield f"     the first after a pause or a change of clocks: {first}"
    if doubted := lease.get("doubted"):
        yield f"     its frames do not count: {doubted['reason']}"
    if silent := lease.get("silent"):
        yield f"     {silent}"
    if missed := lease["missed"]:
        over = f"{missed['observed_ms']:.4g} ms observed, over {missed['limit_ms']:.4g} ms, in {missed['frames']} frames"
        yield RedText(f"     missed: {missed['target']}: {over}: {missed['reason']}")
        if missed["doing"]:
            yield f"     therefore: {missed['doing']}"


def _guessed(lease: Mapping[str, Any]) -> Iterator[str]:
    if not (guesses := lease.get("guessed")):
        return
    yield f"     guessed: {lease['predicted']['guessed_share']:.0%} of the GPU's time"
    for guess in guesses:
        part = f"{counted(guess['launches'], 'launch')}, {guess['time_share']:.1%} at the top clocks"
        yield f"       {guess['kind']}, {guess['why']} ({part})"
    if more := lease["guessed_more"]:
        yield f"       and {more} more"


def _policy(policy: Mapping[str, Any]) -> str:
    khz = policy["effective_khz"] or policy["accepted_khz"]
    clock = f"{khz / KHZ_PER_MHZ:.1f} MHz" if khz else "not measured"
    return f"{policy['policy']} {clock} ({policy['governor']})"


def _clocks(status: Mapping[str, Any]) -> str:
    if status["configuration"] is None:
        return "cannot be read"
    known = output.clocks(status["configuration"]).split(", ")
    unmeasured = status.get("unmeasured", {})
    told = ((CLOCKS[axis], text, unmeasured.get(axis, "")) for axis, text in zip(CLOCKS, known, strict=True))
    return ", ".join(f"{name} unknown" if how == "unknown" else f"{text} {how}".rstrip() for name, text, how in told)
