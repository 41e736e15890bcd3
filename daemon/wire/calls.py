# SPDX-License-Identifier: Apache-2.0
"""The two interfaces of the daemon: every method with its parameters and its reply.

``python docs/interfaces.py`` writes ``docs/jetdvfs.varlink`` and ``docs/admin.varlink`` from this module.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw

from ...kernels.execution import Execution, Phase
from ...kernels.units import Method
from .interface import Int, Interface, array, method, structure, table
from .protocol import ADMIN_INTERFACE, INTERFACE

Configuration = structure("Configuration", "One setting of the three clocks, each a frequency of the board's own tables.",
    cpu_khz=Int, gpu_hz=Int, emc_hz=Int)  # fmt: skip
Tensor = structure("Tensor", """An input. dtype: the file's by default. name: needed if the order does not tell which input it
    is. value: the numbers in a tensor that steer the network, row-major, each as JSON text. An input of dtype int, float,
    flag (a truth value) or str is no tensor: it has no shape, and its value is the value itself; dtype none has none.""",
    shape=array(Int), dtype=str | None, name=str | None, value=array(str) | None)  # fmt: skip
Beside = structure("Beside", """Time of a frame outside the network's own launches. host_ms: the CPU's work before and
    after, in ms at its top clock. copied_bytes: between the host's memory and the device's.""",
    host_ms=float | None, copied_bytes=Int | None)  # fmt: skip
Boundary = structure("Boundary", """The operator at which a list of launches ends before its network does, its place in the
    model's file, and why it is not followed. A reply with a boundary counts nothing of the rest.""",
    operator=str, place=str, reason=str)  # fmt: skip
Network = structure("Network", """network: the handle for Predict, Plan and Hold on this connection. digest: equal for
    networks of equal cost and end. boundary: absent for a whole network. phase: of a language model, reading a prompt or
    making a token; some targets are for one of them alone.""",
    network=str, name=str, digest=str, launches=Int, host_calls=Int, kinds=table(Int), flops=Int, boundary=Boundary | None,
    phase=Phase | None)  # fmt: skip
_FIGURES = {
    "configuration": Configuration, "latency_ms": float, "power_mw": float, "energy_mj": float, "guessed_share": float,
    "energy_per_frame_mj": float | None, "latency_high_ms": float | None, "energy_high_mj": float | None,
    "temperature_c": float | None,
}  # fmt: skip
Prediction = structure("Prediction", """One inference at one configuration. energy_per_frame_mj adds the idle energy up to
    the frame's end, if a frame rate was given. The _high figures are not exceeded with the requested confidence; absent
    without one. guessed_share: part of the GPU's time, 0 to 1, of kernels with guessed cost. temperature_c: of the settled
    die, in degrees Celsius; absent if the profile has one temperature only, or the board reports none.""",
    **_FIGURES)  # fmt: skip
Alternative = structure("Alternative", "A neighbour of the choice, one clock one step up or down, and why it was not taken.",
    step=str, verdict=str, **_FIGURES)  # fmt: skip
Guess = structure("Guess", """Kernels of one kind with guessed cost: why (their features, and the measured ones), number of
    launches, and their part of the GPU's time at the top clocks, 0 to 1.""",
    kind=str, why=str, launches=Int, time_share=float)  # fmt: skip
Mode = structure("Mode", "NVIDIA's power mode in force.", id=Int, name=str)
Proposal = structure("Proposal", """A better power mode than the one in force; only the operator switches it. configuration:
    its clocks. gain: share by which the target's figure would be lower, absent if the mode in force does not meet the
    target. note: the remedy and its reason, for people.""",
    mode=Mode, cores=Int | None, configuration=Configuration, gain=float | None, note=str)  # fmt: skip
PlanReport = structure("PlanReport", """top: the prediction at the top clocks. front: at most 32 of the configurations that
    no other beats in both latency and energy, evenly spaced, the fastest and the most frugal included. considered: number
    of configurations within the limits; attaining: number of those that meet the target. why: the reasons, for people.
    guessed: the largest first. simulated: the profile was measured on a simulated board. execution: the assumed way of the
    launches to the GPU; execution_note: its unmeasured parts, empty if there are none. proposal: a better power mode, in
    the reply to Plan alone.""",
    target=str, fps=float | None, confidence=float | None, choice=Prediction, top=Prediction, front=array(Prediction),
    alternatives=array(Alternative), guessed=array(Guess), considered=Int, attaining=Int, why=str, simulated=bool,
    boundary=Boundary | None, execution=str, execution_note=str, proposal=Proposal | None)  # fmt: skip
Write = structure("Write", path=str, value=str)
Cluster = structure("Cluster", "A CPU cluster apart from the one of cpu_khz, by its cpufreq policy; in kHz.",
    policy=str, requested=Int, accepted=Int, effective=Int)  # fmt: skip
Applied = structure("Applied", """requested: the request to the board. accepted: the request as its kernel and firmware hold
    it. effective: the measured clocks, 0 while power-gated. verified: all three agree; notes: differences, and failed
    checks. clusters: those apart from the one of cpu_khz, which are as low as other work on them allows. governed: axes
    that no lease sets; all three say what they measure.""",
    requested=Configuration, accepted=Configuration, effective=Configuration, verified=bool, reason=str, writes=array(Write),
    elapsed_ms=float, notes=array(str), clusters=array(Cluster), governed=array(str))  # fmt: skip
Observed = structure("Observed", """Latencies that the application reported for its lease, over its most recent frames.
    last_ms: the median of the last eight.""",
    frames=Int, mean_ms=float, p50_ms=float, p95_ms=float, last_ms=float)  # fmt: skip
Unkept = structure("Unkept", """A target that the clocks in force do not keep: which part of it and why, for people; and the
    leases whose clocks are in force instead, empty if the cause is other work, a limit or the board.""",
    target=str, reason=str, leases=array(str))  # fmt: skip
Shared = structure("Shared", """Frames of several leases, which queue on the one GPU. leases: the others. latency_ms: the
    longest latency of a frame, with the wait for one of each of theirs, as predicted at the clocks in force. limit_ms: its
    limit, absent for any time.""",
    leases=array(str), latency_ms=float, limit_ms=float | None)  # fmt: skip
Missed = structure("Missed", """A latency target that the lease's frames do not keep. observed_ms: median of its last
    frames. predicted_ms: at the clocks in force. frames: number of late ones since. reason: why, for people. doing: the
    remedy, empty if there was none yet.""",
    target=str, limit_ms=float, observed_ms=float, predicted_ms=float | None, frames=Int, reason=str, doing=str)  # fmt: skip
Doubted = structure("Doubted", """Frames of a lease that do not count, because they cannot be, or are not believed to be,
    its network's. side: below the roofline, or much shorter or longer than predicted. observed_ms: their median. bound_ms:
    the roofline that they undercut, or the prediction that they are far from. frames: number of them in a row. reason: for
    people.""",
    side=Literal["impossible", "fast", "slow"], observed_ms=float, bound_ms=float, frames=Int, reason=str)  # fmt: skip
Corrected = structure("Corrected", """Frames that a plan is corrected by, of this lease and of earlier ones of the same
    user. app: the application that reported them.""",
    frames=Int, app=str)  # fmt: skip
Standby = structure("Standby", """Low clocks of a lease for a target while its frames have stopped. now: they are in
    force. count: how often they were, total_s: for how long in all. back_ms: how long setting its own clocks again took, in
    all.""",
    now=bool, count=Int, total_s=float, back_ms=float)  # fmt: skip
Lease = structure("Lease", """why: the reasons for its plan, for people. limit_ms: longest latency by target and frame rate.
    raised_by: leases that need a higher clock; their clocks are in force. shared: absent if no other lease has a network.
    unkept: absent while its target is kept. method: of its prediction, timeline or sum; absent without one. missed: absent
    while frames keep the target. doubted: absent while its frames count. corrected: absent while the plan is the
    prediction's. silent: a remark on a lease for a target that reports no frames. frames: number of reported ones; late:
    number of those beyond limit_ms. first_frames: number of those that were the first after a pause or at other clocks;
    first_ms: their median. energy_mj: of the board's energy rails since the lease began, absent if they are not read.
    guessed: the largest four parts of its prediction; guessed_more: number of further ones. governed: axes that it leaves
    to their governors, at the lowest level in its configuration. standby: absent if it never was.""",
    lease=str, app=str, pid=Int, uid=Int, reason=str, target=str | None, network=str | None, fps=float | None,
    limit_ms=float | None, configuration=Configuration, raised_by=array(str), shared=Shared | None, unkept=Unkept | None,
    held_s=float, why=str | None, predicted=Prediction | None, method=str | None, observed=Observed | None,
    missed=Missed | None, doubted=Doubted | None, corrected=Corrected | None, silent=str | None, frames=Int, late=Int,
    first_frames=Int, first_ms=float | None, energy_mj=float | None, boundary=Boundary | None, guessed=array(Guess),
    guessed_more=Int, proposal=Proposal | None, governed=array(str), standby=Standby | None)  # fmt: skip
Profile = structure("Profile", name=str, board=str, simulated=bool)
Floor = structure("Floor", """least: the lowest level while leases are held, so that other work is not starved; in kHz for
    cpu_khz and for a cpufreq policy by name, in Hz for emc_hz. reason: why, for people.""",
    clock=str, least=Int, reason=str)  # fmt: skip
CpuPolicy = structure("CpuPolicy", """State of one cpufreq policy, in kHz. accepted_khz: absent while a governor decides.
    effective_khz: absent if it is not measured. leads: cpu_khz means this policy.""",
    policy=str, accepted_khz=Int | None, effective_khz=Int | None, governor=str, leads=bool)  # fmt: skip
Budget = structure("Budget", """Most that the board may draw, as the mean of its energy rails: so that a battery lasts, or
    no zone becomes too hot. reason: why, for people.""",
    limit_mw=float, reason=str)  # fmt: skip
Battery = structure("Battery", """A battery that a lease wants to last. battery: the kernel's name for it, absent if its
    charge was stated. left_wh: its charge. hours: how long it must still last. lasts_h: how long it will at the present
    power, absent if unknown.""",
    battery=str | None, left_wh=float, hours=float, lasts_h=float | None)  # fmt: skip
Event = structure("Event", """Over-current events (oc1, oc2, oc3): number since boot, and recent number a minute. Each cuts
    CPU and GPU clocks for a moment that no clock shows.""",
    event=str, count=Int, per_minute=float)  # fmt: skip
Changes = structure("Changes", "Changes of clocks for leases since the daemon began: their number and their time in all.",
    count=Int, total_ms=float)  # fmt: skip
SlowReason = structure("SlowReason", """A reason why a clock is not higher. axis: cpu_khz, gpu_hz or emc_hz, absent for several.
    level: the highest level that it leaves, in the unit of the axis.""",
    axis=str | None, level=Int | None, reason=str)  # fmt: skip
StatusReport = structure("StatusReport", """configuration: the clocks as measured, age_s seconds ago. applied: the last
    setting in force. baseline: "held" while one is kept to be restored, "none" while the board is as found. degraded: why
    the daemon cannot do all of its job right now; empty when it can. budget: absent if the board may draw anything.
    ceiling_c: the lowest temperature ceiling in force, in degrees Celsius. mode: absent if the system does not report it.
    throttled: why the kernel slows the board down now. energy_rails: the rails whose sum every energy figure means.
    energy_mj: of every rail since the daemon began. writes: the last ones, in order.
    slow: why each clock is not higher. unmeasured: clocks of the configuration, by axis: unknown, at most, or not measured.
    engines_hz: clocks of codec and vision units that can be read, 0 while off.""",
    version=str, board=str, title=str, profile=Profile | None, configuration=Configuration | None,
    cpu_policies=array(CpuPolicy), applied=Applied | None, changes=Changes, floors=array(Floor), leases=array(Lease),
    rails_mw=table(float), energy_rails=array(str), energy_mj=table(float), temperatures_mc=table(Int), mode=Mode | None,
    budget=Budget | None, ceiling_c=float | None, battery=Battery | None, throttled=array(str), over_current=array(Event),
    baseline=Literal["none", "held"], degraded=array(str), writes=array(Write), slow=array(SlowReason), unmeasured=table(str),
    engines_hz=table(Int), uptime_s=float, age_s=float)  # fmt: skip
Used = structure("Used", """Summary of a lease. energy_mj: of the board's energy rails in measured_s seconds of it, from
    their first reading to their last; absent if that is too short to tell, or they are not read. saved_share: predicted
    share of a frame's energy saved against the top clocks, absent without a plan or frames.""",
    held_s=float, energy_mj=float | None, measured_s=float | None, mean_power_mw=float | None, frames=Int, late=Int,
    saved_share=float | None)  # fmt: skip
Program = structure("Program", """Memory of a user's program. name: of the network, empty for a program without prediction.
    app: the application that reported last. frames: number of observed ones, at that many configurations; seen_s: time of
    the last, in seconds since 1970. factor: median of observed over predicted latency, absent without prediction.""",
    uid=Int, name=str, app=str, frames=Int, configurations=Int, seen_s=float, factor=float | None)  # fmt: skip
Entry = structure("Entry", """One decision of the daemon, or its cause. number: counts them since the daemon began. time_s:
    in seconds since 1970. configuration: CPU,GPU,EMC in kHz, Hz and Hz.""",
    number=Int, time_s=float,
    kind=Literal[
        "lease_begun", "lease_ended", "clocks_set", "given_back", "target_missed", "target_kept", "planned_again",
        "frames_doubted", "frames_missing", "budget", "woken", "slowed", "at_speed", "trouble"],
    message=str, lease=str | None, app=str | None, configuration=str | None, reason=str | None)  # fmt: skip
_KEPT = {"limit_ms": float | None, "shared": Shared | None, "unkept": Unkept | None}
_REFUSED = {"message": str, "exit_code": Int}

PUBLIC = Interface(INTERFACE, """Calls of applications to jetdvfsd. Calls on one connection are answered in order; leases and
    networks of a connection end with it. Every error carries one line for people and the exit code of the command line.""", (
    method("Status", "State of the board and of all leases.", {}, {"status": StatusReport}),
    method("LoadModel", """The model's file (TorchScript, torch.export, ONNX; an engine's layers, which take no inputs;
        GGUF, whose input is prefill or decode, a number of tokens) travels as a descriptor: exactly one, with this call,
        which is sent by itself and has at most 32 KiB. A network whose list of launches ends early is refused
        (InputRefused), unless it ends at one of the operators in accept_boundary. input_texts: more inputs, as on the
        command line (1x3x224x224, mask=1x128:bool, decode=2048:int).""",
        {"inputs": array(Tensor), "name": str | None, "accept_boundary": array(str) | None, "input_texts": array(str) | None},
        {"network": Network}),
    method("LoadNetwork", """Load a network from its list of launches, in the JSON of `jetdvfs decompose --json`.
        accept_boundary: as of LoadModel.""",
        {"network": Raw, "accept_boundary": array(str) | None}, {"network": Network}),
    method("Unload", "Drop a network from this connection.", {"network": str}, {}),
    method("Predict", """Predict at the configuration given; without one, at the top clocks, the fastest and the most frugal
        configuration. method: kernel by kernel, host and GPU played against each other (timeline, by default) or added up
        (sum). execution: how the launches reach the GPU: call by call, captured in a graph, or as an engine; absent: as
        they are listed (TensorRT's as an engine, all others call by call).""",
        {"network": str, "configuration": Configuration | None, "fps": float | None, "method": Method | None,
         "execution": Execution | None, "beside": Beside | None},
        {"predictions": table(Prediction), "guessed": array(Guess), "simulated": bool, "boundary": Boundary | None,
         "execution": str, "execution_note": str}),
    method("Plan", """target: the requirement, as in latency_ms=50. Its forms:

        ${targets}""",
        {"network": str, "target": str, "fps": float | None, "confidence": float | None, "method": Method | None,
         "execution": Execution | None, "beside": Beside | None},
        {"plan": PlanReport}),
    method("Hold", """Begin a lease, either for a target, with a network or without, or for a configuration. Without a
        network it begins at the highest clocks, and learns from reported frames: only clocks that keep the target with 99%
        probability are tried. The lease ends with Release or with the connection. limit_ms: longest latency by target and
        frame rate. ceiling_c: temperature that no zone may exceed while it is held, in degrees Celsius. battery_wh: with a
        target of hours, the charge of the battery now, if the board does not report it. shared, unkept: as in its status,
        with all leases that are held. trust_frames: believe all frames, also those that its network's roofline or
        prediction contradict. configuration_text: instead of configuration, as on the command line (1190.4,905.25,1600);
        max and min are the highest and the lowest level that may be set as the lease begins, for one clock (max,612,max) or
        for all three (max); a clock left empty (,612,) stays its governor's. standby: false to keep the clocks of a target
        while no frames come.""",
        {"network": str | None, "target": str | None, "fps": float | None, "confidence": float | None,
         "method": Method | None, "execution": Execution | None, "beside": Beside | None,
         "configuration": Configuration | None, "reason": str | None, "app": str | None, "ceiling_c": float | None,
         "battery_wh": float | None, "trust_frames": bool | None, "configuration_text": str | None,
         "standby": bool | None},
        {"lease": str, "plan": PlanReport | None, "applied": Applied, **_KEPT, "corrected": Corrected | None}),
    method("Change", """Change the request of a lease for a target: absent members stay as they were. If it cannot be
        granted, the lease stays as it was.""",
        {"lease": str, "network": str | None, "target": str | None, "fps": float | None, "confidence": float | None},
        {"plan": PlanReport | None, "applied": Applied | None, **_KEPT}),
    method("Release", "End a lease: for its holder, any process of the same user, and root.", {"lease": str}, {"used": Used}),
    method("Report", "Report latencies of frames just finished, oldest first. doubted, silent: as in the lease's status.",
        {"lease": str, "latency_ms": array(float)},
        {"observed": Observed | None, "missed": Missed | None, "doubted": Doubted | None, "silent": str | None}),
    method("Learned", """Memory of the caller's programs, the newest first; of all users' for root. name: of this network,
        or of this application if no network was predicted.""",
        {"name": str | None}, {"programs": array(Program)}),
    method("Forget", "Drop the programs that Learned lists, and return their number.",
        {"name": str | None}, {"programs": Int}),
    method("Log", "The last 512 entries, oldest first; of one lease if it is named.",
        {"lease": str | None}, {"entries": array(Entry)}),
    method("Watch", """Every entry after the one of this number, by default from now on, as it comes. It is called with
        `more`, on a connection without other calls.""",
        {"lease": str | None, "after": Int | None}, {"entry": Entry}),
    method("Preview", """The clocks that Hold would set for this request alone, with the demand of other work; sets nothing.
        It takes a configuration, or a target without a network; Plan is for a network.""",
        {"target": str | None, "fps": float | None, "confidence": float | None, "configuration": Configuration | None,
         "app": str | None, "ceiling_c": float | None, "configuration_text": str | None},
        {"configuration": Configuration}),
), dict.fromkeys((
    "InvalidRequest", "InputRefused", "TargetNotAttainable", "HardwareRefused", "HardwareBusy", "LeaseEnded", "LimitReached",
    "NotPermitted", "Internal",
), _REFUSED))  # fmt: skip

ADMIN = Interface(ADMIN_INTERFACE, "Calls of root alone, on a socket that is never mounted into a container.", (
    method("Restore", "End every lease and put every clock that is still ours back to its baseline.",
        {}, {"leases": Int, "restored": array(str), "left": array(str), "failed": array(str)}),
    method("Reload", "Read the configuration file again; its limits hold from then on, for leases already granted too.",
        {}, {"warnings": array(str)}),
), dict.fromkeys(("InvalidRequest", "InputRefused", "HardwareRefused", "HardwareBusy", "Internal"), _REFUSED))  # fmt: skip
