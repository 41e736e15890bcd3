# SPDX-License-Identifier: Apache-2.0
"""Tokens from rates: tables of the published form that follow known rates, and the published ones where they are at hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from jetdvfs.profiles.lab.cli import main
from jetdvfs.profiles.lab.compare.tokens import RuntimeRates, TableClocks, TokenRow, token
from jetdvfs.tests.support.paths import SHARED_DATA

pytest.importorskip("scipy", reason="rates are fitted with scipy")

ORIN = TableClocks("agx-orin-64gb", 8, 1300.5e6, 204.8e9)
KNOWN = RuntimeRates(memory=1.3, work=0.008, start=9000.0, unit_mw=2_500.0, byte_mj=1.5e-7, instruction_mj=2e-8)
VARIANTS = [("q4km", "Q4_K_M", 315), ("iq4xs", "IQ4_XS", 315), ("lcq4km", "Q4_K_M", 15814), ("spec", "F16", 1)]
NX_MODES = [("10W", 2, 612, 2133), ("25W", 4, 408, 3199), ("40W", 4, 1173, 3199)]


def measured(model: str, form: str, context: int, clocks: TableClocks, runtime: str = "") -> tuple[float, float]:
    """A token's time and energy by the known rates."""
    row = TokenRow("", runtime, model, form, context, clocks, "", 0, 0)
    rates = replace(KNOWN, start=0.05) if runtime == "transformers" else KNOWN
    return rates.ms(row), rates.mj(row)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The three tables, as the known rates have it."""
    modes = ["mode,gpu_mhz,active_tpcs,emc_current_mhz,model,decode_ms_per_token,vdd_in_mw_decode"]
    for mode, tpcs, mhz, emc_mhz in NX_MODES:
        for model in ("Qwen3-1.7B", "Qwen3-4B"):
            clocks = TableClocks("orin-nx-16gb", tpcs, mhz * 1e6, emc_mhz * 32e6)
            ms, mj = measured(model, "INT4", 129, clocks)
            modes.append(f"{mode},{mhz},{tpcs},{emc_mhz} (capped),{model}-Instruct,{ms},{1e3 * mj / ms}")
    (tmp_path / "derived.csv").write_text("\n".join(modes))
    runs = {}
    for name, form, context in VARIANTS:
        ms, mj = measured("Llama-3.1-8B", form, context, ORIN)
        runs[f"maxn-{name}"] = {
            "mode": "maxn",
            "variant": name,
            "tok_per_s_median": 1e3 / ms,
            "j_per_token_median": mj / 1e3,
        }
    (tmp_path / "energy-summary.json").write_text(json.dumps(runs))
    thor = TableClocks("agx-thor", 10, 1575e6, 273e9)
    table = ["Model,Format,Power (W),mJ/tok"]
    for model in ("Qwen2.5-1.5B", "Qwen2.5-3B", "Qwen2.5-7B"):
        for form in ("HF bf16", "F16", "Q6_K", "Q4_K_M"):
            plain, runtime = ("bf16", "transformers") if form.startswith("HF") else (form, "")
            both = [measured(model, plain, 300, clocks, runtime) for clocks in (ORIN, thor)]
            watts, costs = "/".join(f"{mj / ms}(0.1)" for ms, mj in both), "/".join(f"{mj}(1)" for _, mj in both)
            table.append(f"{model},{form},{watts},{costs}")
    (tmp_path / "hydra_table6_efficiency.csv").write_text("\n".join(table))
    alone = "platform,backend,dtype,model,itl_ms_mean,mj_per_token_mean\nxavier,hf,torch.bfloat16,Qwen2.5-7B,187.5,3941\n"
    (tmp_path / "hydra_ae_quick_reference.csv").write_text(alone)
    # What the memory moved: half as much again as is counted.
    forms = {"HF bf16": "bf16", "F16": "F16", "Q6_K": "Q6_K", "Q4_K_M": "Q4_K_M"}
    moved = ["Model," + ",".join(f"{form} BW_eff" for form in forms)]
    for model in ("Qwen2.5-1.5B", "Qwen2.5-3B", "Qwen2.5-7B"):
        rates = []
        for form, plain in forms.items():
            ms, _ = measured(model, plain, 300, ORIN, "transformers" if form.startswith("HF") else "")
            rates.append(f"1.0(0.1)/{1.5e-6 * token(model, plain, 300).bytes / ms}(0.2)")
        moved.append(",".join([model, *rates]))
    (tmp_path / "hydra_table4_gpu_mem_orin.csv").write_text("\n".join(moved))
    return tmp_path


def test_rows_that_follow_two_rates_are_predicted_from_the_others(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "tokens", "--data", str(data), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    judged = [one["predicted"] | {"board": one["board"]} for one in found if one["predicted"]]
    assert len(judged) == 6 + 3 + 24 and len(found) == len(judged) + 1
    assert all(abs(one["rate_error"]) < 0.1 and abs(one["energy_error"]) < 0.1 for one in judged)
    nx = [one for one in judged if one["board"] == "orin-nx-16gb"]
    assert all(abs(one["rate_error"]) < 0.03 for one in nx)


def test_the_table_names_what_is_missed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "derived.csv"
    lines = path.read_text().splitlines()
    fields = lines[1].split(",")
    lines[1] = ",".join([*fields[:5], str(3 * float(fields[5])), fields[6]])
    path.write_text("\n".join(lines))
    assert main(["compare", "tokens", "--data", str(data)]) == 4
    out = capsys.readouterr().out
    assert "TensorRT Edge-LLM on a real orin-nx-16gb" in out and "alone" in out
    (row,) = [line for line in out.splitlines() if line.startswith("  Qwen3-1.7B INT4 10W")]
    assert row.count("MISSED") == 2
    assert out.splitlines()[-2].endswith("of 33 rows within 15% of the tokens per second")
    assert out.splitlines()[-3].endswith("over those that are counted, 12 rows: median 1.500, 1.500 to 1.500")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("derived.csv", lambda text: text.replace("Qwen3-4B", "Qwen9-4B")),
        ("derived.csv", lambda text: text.replace(",612,", ",,")),
        ("energy-summary.json", lambda text: text[:-5]),
        ("energy-summary.json", lambda text: "[]"),
        ("hydra_table6_efficiency.csv", lambda text: text.replace("/", "")),
        ("hydra_table6_efficiency.csv", None),
        ("hydra_table4_gpu_mem_orin.csv", lambda text: text.replace("Q6_K BW_eff", "Q6_K")),
    ],
)
def test_tables_that_are_not_as_published_end_in_one_line(
    name: str, spoil: Callable[[str], str] | None, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data / name
    if spoil is None:
        path.unlink()
    else:
        path.write_text(spoil(path.read_text()))
    assert main(["compare", "tokens", "--data", str(data)]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_models_have_the_bytes_of_their_files() -> None:
    # The files that were measured: 4.58 and 4.13 GiB, of which the table of tokens is read for one token alone.
    for form, gib, bits in (("Q4_K_M", 4.58, 4.5), ("IQ4_XS", 4.13, 4.25)):
        table = 128256 * 4096 * bits / 8
        assert token("Llama-3.1-8B", form, 1).bytes + table == pytest.approx(gib * 2**30, rel=0.015)


def test_unpacking_is_counted_by_the_format_of_each_weight() -> None:
    plain, coarse, fine = (token("Qwen2.5-7B", form, 1) for form in ("F16", "Q8_0", "Q6_K"))
    weights = (coarse.bytes - plain.bytes) / (34 / 32 - 2)
    assert plain.instructions < 1e-2 * coarse.instructions
    assert fine.instructions / weights == pytest.approx(6.75, rel=0.01)
    assert coarse.instructions / weights == pytest.approx(2.1, rel=0.01)


@pytest.mark.shared_data
def test_the_published_tables_are_met_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    if not SHARED_DATA.is_dir():
        pytest.skip(f"measured data not found at {SHARED_DATA}")
    main(["compare", "tokens", "--data", str(SHARED_DATA)])
    lines = capsys.readouterr().out.splitlines()
    counts = [int(line.split()[0]) for line in lines[-2:]]
    assert counts[0] >= 44 and counts[1] >= 48
    assert "15 rows: median 1.00" in lines[-3]
