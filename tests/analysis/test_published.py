"""The papers' tables and the claims ledger: complete, consistent, and every claim has its verdict function."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from lockstep.analysis.judging import judge
from lockstep.analysis.published import (
    CLAIM,
    CLAIM_COLUMNS,
    CONTRADICTION,
    KINDS,
    UNSAID,
    PublishedError,
    read_claims,
    read_ledger,
    read_table,
)
from lockstep.analysis.stored import no_records
from lockstep.analysis.verdicts import COMMON, CONTRADICTED, NOT_YET, PAPER, SUPPORTED
from lockstep.experiments import registry
from lockstep.experiments.registry import checked_claims, every
from lockstep.records.places import PlaceError, repository_root

# What the paper prints, transcribed apart from the CSV files: (ComplexSmall, SimpleBig).
PRINTED = {
    "table1": {("CPU single-process", "cpu"): (4, 6.15), ("CPU multi-process", "cpu"): (5.76, 15.57),
               ("GPU single-process", "cuda"): (1.57, 1.25)},
    "table2": {("model", "cuda"): (6.74, 8.01), ("data and model", "cuda"): (2.84, 3.85)},
    "table3": {("MPI", "cpu"): (12.11, 26.62), ("MPI", "cuda"): (4.13, 11.79), ("Spark", "cpu"): (1.14, 0.53),
               ("Spark", "cuda"): (None, None)},
}  # fmt: skip
GOOD = {"id": "a", "kind": "claim", "paper": "p", "place": "§1", "statement": "s", "value": "2", "unit": "times",
        "use_case": "both", "notebook": "n", "verdict": "pending", "note": ""}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_tables_hold_what_the_paper_prints(name: str) -> None:
    table = read_table("single-to-multi", name)
    found = {(r.row, r.device, r.use_case): None if pd.isna(r.speedup) else r.speedup for r in table.itertuples()}
    expected = {}
    for (row, device), values in PRINTED[name].items():
        for use_case, value in zip(("ComplexSmall", "SimpleBig"), values, strict=True):
            expected[row, device, use_case] = value
    assert found == expected
    assert set(table["place"]) == {f"Table {name[-1]}"}


@pytest.mark.parametrize("name", PRINTED)
def test_every_number_of_a_table_is_a_claim_and_the_reverse(name: str) -> None:
    table = read_table("single-to-multi", name).dropna(subset="speedup")
    claims = read_claims()
    claims = claims[claims["paper"] == "single-to-multi"]
    claims = claims[(claims["place"] == f"Table {name[-1]}") & (claims["unit"] == "times")]
    assert sorted(zip(table["use_case"], table["speedup"], strict=True)) == sorted(
        zip(claims["use_case"], claims["value"], strict=True)
    )


def test_figures_quoted_outside_the_tables_agree_with_them_or_are_contradictions() -> None:
    printed = {v for rows in PRINTED.values() for pair in rows.values() for v in pair if v is not None}
    claims = read_ledger()
    quoted = claims[claims["id"].str.match("s2m-(headline|mpi-gpu|spark-slows|gpu-worst)") & claims["value"].notna()]
    assert len(quoted) >= 5
    for claim in quoted.itertuples():
        assert (claim.value in printed) != (claim.kind == CONTRADICTION), claim.id


def test_the_headline_contradiction_quotes_both_numbers() -> None:
    claim = read_ledger().set_index("id").loc["s2m-headline-cpu"]
    table = read_table("single-to-multi", "table3")
    best = table[table["device"] == "cpu"]["speedup"].max()
    assert claim["kind"] == CONTRADICTION and claim["value"] == 26.63
    assert f"{best:g}" in claim["note"] and best != claim["value"]


def test_every_claim_has_a_verdict_function_and_every_function_a_claim() -> None:
    claims = checked_claims()  # refuses a claim whose function neither its experiment nor COMMON has
    for found in every():
        used = set(claims.loc[claims["notebook"] == found.name, "verdict"])
        assert used - set(COMMON) == set(found.verdicts), found.name
    assert set(COMMON) - set(claims["verdict"]) <= {"pending", "survey"}, "there may be no claim of a notebook to come"
    assert set(COMMON) == {"pending", "survey", "documentary"}, "contradictions and what is left unsaid are not judged"


def test_measured_claims_name_a_notebook_that_is_built_and_pending_ones_another() -> None:
    claims = read_claims()
    open_ones = {"pending", "survey", "documentary"}
    judged = claims[~claims["verdict"].isin(open_ones)]
    built = {found.name for found in every() if found.verdicts}
    assert set(judged["notebook"]) == built and len(judged) >= 20
    pending = claims[claims["verdict"] == "pending"]
    assert not built & set(pending["notebook"])
    surveys = claims[claims["verdict"] == "survey"]
    assert surveys["note"].ne("").all() and list(surveys["id"]) == ["s2m-gpu-dominates", "s2m-layers-by-use"]


def test_what_a_document_answers_is_answered_by_a_quotation() -> None:
    """Its words stand in the ledger, and its figure in its words."""
    claims = read_claims()
    quoted = claims[claims["verdict"] == "documentary"].to_dict("records")
    found = {row["id"]: judge(row, no_records(), {}) for row in quoted}
    assert {each.grade for each in found.values()} == {PAPER}
    assert {name: each.answer for name, each in found.items()} == {
        "cla-cited-corona": SUPPORTED, "cla-dropout-range": CONTRADICTED, "cla-frameworks": CONTRADICTED,
        "dps-small-jobs-share": SUPPORTED,
    }  # fmt: skip
    other = next(row for row in quoted if row["id"] == "dps-small-jobs-share") | {"value": 83.0}
    assert judge(other, no_records(), {}).answer == NOT_YET, "a figure that the words do not hold"


def test_a_row_is_a_claim_or_is_listed_with_its_reason() -> None:
    ledger, claims = read_ledger(), read_claims()
    assert set(ledger["kind"]) <= set(KINDS) and set(claims["kind"]) == {CLAIM}
    assert list(claims["id"]) == list(ledger.loc[ledger["verdict"] != "", "id"])
    others = ledger[ledger["kind"] != CLAIM]
    assert others["note"].ne("").all() and len(others) + len(claims) == len(ledger)
    assert set(others["paper"]) == set(claims["paper"]), "no paper is free of contradictions and gaps"


# Transcribed apart from the CSV files.
TIMES = {5: 17.2157, 6: 14.321, 7: 11.345, 8: 9.456, 16: 5.673, 32: 2.456}
LAYERS = [(8e6, "50x50", 8e4, 3.2e15), (1.6e5, "5x5", 1.6e5, 1.28e12), (3.2e5, "5x5", 3.2e5, 5.12e12)]
LAYERS += [(1, "1280000 x1", 1, 2.56e6)]


def of_convlstm() -> pd.DataFrame:
    claims = read_ledger()
    return claims[claims["paper"] == "convlstm-d-accel"].set_index("id")


def test_tables_of_convlstm_d_accel_hold_what_the_paper_prints() -> None:
    topology = read_table("convlstm-d-accel", "table2").set_index("row")["value"]
    assert (topology["Flatten"], topology["Epochs"], topology["Batch size"]) == ("512", "10", "32")
    assert (topology["Learning rate"], topology["Optimization / Loss"]) == ("0.001", "Adam / binary cross entropy")
    assert [value[:3].strip() for value in topology["Conv2D \N{EN DASH}ReLU"]] == ["32", "64", "128"]
    times = read_table("convlstm-d-accel", "table3")
    assert dict(zip(times["nodes"], times["time_seconds"], strict=True)) == TIMES
    assert set(times["accuracy_percent"]) == {100}
    layers = read_table("convlstm-d-accel", "table4")
    columns = ["kernels", "kernel_shape", "output_shape", "flops"]
    assert list(layers[columns].itertuples(index=False, name=None)) == LAYERS


def test_every_row_of_table_3_and_table_4_is_a_claim() -> None:
    claims = of_convlstm()
    times = claims[claims.index.str.startswith("cla-table3-time-")]["value"]
    expected = [TIMES[5] / seconds for nodes, seconds in TIMES.items() if nodes != 5]
    assert list(times) == [pytest.approx(ratio, rel=1e-3) for ratio in expected]
    assert claims.loc["cla-table3-accuracy", "value"] == 100
    flops = claims[claims.index.str.startswith("cla-table4-flops-")]["value"]
    assert list(flops) == [row[-1] for row in LAYERS]


def test_the_totals_contradict_each_other_as_the_ledger_says() -> None:
    claims, total = of_convlstm(), sum(row[-1] for row in LAYERS)
    assert claims.loc["cla-flops-node", "value"] == pytest.approx(total, rel=0.01)
    assert claims.loc["cla-flops-5-nodes", "value"] == pytest.approx(4 * total, rel=1e-6)
    assert claims.loc["cla-flops-cloud", "value"] == pytest.approx(4000 * total, rel=0.01)
    assert f"{total / 1e15:.11f}e15" in claims.loc["cla-flops-four-times", "note"]
    assert claims.loc["cla-superlinear", "value"] == pytest.approx(TIMES[5] / TIMES[32], abs=0.005)
    assert claims.loc["cla-superlinear", "value"] > 32 / 5


def test_the_gaps_of_convlstm_d_accel_are_rows_with_their_reason() -> None:
    claims = of_convlstm()
    open_ones = claims[(claims["kind"] != CLAIM) | (claims["verdict"] == "survey")]
    assert (open_ones["note"] != "").all()
    for told in ("SageMaker", "2.206 %", "three are announced and four", "Figure 8", "Table 11", "FLOP per second",
                 "four worker nodes", "3, 5, 7, 9 and 11", "100 %"):  # fmt: skip
        assert open_ones["note"].str.contains(told, regex=False).any(), told


# Transcribed apart from the CSV files: Table 2 of DPro-SM, (dollars per hour, memory, speed, delay) of each method.
METHODS = {
    "GRASS": (2.17, "Medium", "Low", "High"),
    "Dolly": (4.896, "High", "Good for a few tasks only", "No"),
    "Stochastic": (4.896, "High", "Low", "High"),
    "LATE": (2.17, "Medium", "Low", "High"),
    "Wrangler": (0.399, "Low", "Medium", "High"),
    "Proposed": (0.399, "High", "High", "Medium"),
}


def of_dpro_sm() -> pd.DataFrame:
    rows = read_ledger()
    return rows[rows["paper"] == "dpro-sm"].set_index("id")


def test_table_2_of_dpro_sm_is_what_the_paper_prints_and_its_costs_are_claims() -> None:
    table = read_table("dpro-sm", "table2")
    columns = ["dollars_per_hour", "memory_usage", "speed", "delay"]
    printed = dict(zip(table["row"].str.split().str[0], table[columns].itertuples(index=False, name=None), strict=True))
    assert printed == METHODS
    claims = of_dpro_sm()
    costs = claims[claims.index.str.startswith("dps-cost-")]
    assert list(costs["value"]) == list(table["dollars_per_hour"]) and set(costs["unit"]) == {"USD per hour"}
    assert claims.loc["dps-one-standby-node", "value"] == 1 and table["standby_nodes"].iloc[-1].startswith("1 node")


def test_a_garbled_cell_of_a_table_is_marked_and_the_gap_listed() -> None:
    table = read_table("dpro-sm", "table2").set_index("row")
    assert set(table["garbled"]) <= {"", *table.columns}
    assert dict(table.loc[table["garbled"] != "", "garbled"]) == {"LATE": "standby_nodes"}
    assert of_dpro_sm().loc["dps-standby-of-late", "kind"] == UNSAID


def test_every_row_of_dpro_sm_has_its_place_and_no_claim_waits_for_a_notebook() -> None:
    rows = of_dpro_sm()
    place = r"(?:Abstract|Data availability|References|(?:§|Tables? |Figures? )\d[\d.]*(?:(?:-| and )\d)?)"
    assert rows["place"].str.fullmatch(rf"{place}(?:; {place})*").all(), rows["place"].tolist()
    assert set(rows["notebook"]) == {"10_straggler_forecasts", "11_straggler_mitigation"}
    claims = rows[rows["kind"] == CLAIM]
    assert "pending" not in set(claims["verdict"]) and 25 <= len(claims) <= 35
    assert list(claims.index[claims["verdict"] == "documentary"]) == ["dps-small-jobs-share"]
    assert (rows["kind"] == CONTRADICTION).sum() >= 12 and (rows["kind"] == UNSAID).sum() >= 10


def test_the_numbers_of_dpro_sm_are_those_that_it_prints() -> None:
    rows = of_dpro_sm()
    values = rows["value"].dropna()
    assert rows.loc["dps-mitigation", ["value", "unit"]].tolist() == [98, "percent"]
    assert rows.loc["dps-images", ["value", "unit"]].tolist() == [5863, "images"]
    assert set(values) == {98, 82, 50, 1, 5863} | {method[0] for method in METHODS.values()}


def test_the_contradictions_of_dpro_sm_say_what_stands_against_what() -> None:
    rows = of_dpro_sm()
    notes = rows.loc[rows["kind"] == CONTRADICTION, "note"]
    lowest, middle, highest = sorted({method[0] for method in METHODS.values()})
    assert f"{highest} / {lowest} = {highest / lowest:.2f}" in notes["dps-no-unit-price"]
    assert f"{middle} / {lowest} = {middle / lowest:.2f}" in notes["dps-no-unit-price"]
    for told in ("detects the straggler", "workers send gradients", "$0.399 each", "scalability as future work", "82 %",
                 "reference 31", "ends at 46", "Last Approximate Task", "BCC", "bounded staleness"):  # fmt: skip
        assert notes.str.contains(told, regex=False).any(), told


def ledger(folder: Path, *rows: dict[str, str], columns: tuple[str, ...] = CLAIM_COLUMNS) -> Path:
    (folder / "data" / "published").mkdir(parents=True)
    with (folder / "data" / "published" / "claims.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)
    return folder


def test_a_good_ledger_is_read(tmp_path: Path) -> None:
    claims = read_claims(ledger(tmp_path, GOOD, {**GOOD, "id": "b", "value": "", "unit": ""}))
    assert list(claims["value"].isna()) == [False, True] and list(claims["id"]) == ["a", "b"]


def test_only_the_claims_of_a_ledger_are_claims(tmp_path: Path) -> None:
    others = [
        {**GOOD, "id": kind, "kind": kind, "verdict": "", "note": "why", "notebook": ""}
        for kind in (CONTRADICTION, UNSAID)
    ]
    root = ledger(tmp_path, *others, GOOD)
    assert list(read_claims(root)["id"]) == ["a"] and list(read_ledger(root)["kind"]) == [CONTRADICTION, UNSAID, CLAIM]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": ""}, r"claims\.csv, line 3, row 'b': verdict is empty"),
        ({"kind": "gap"}, r"line 3, row 'b': kind='gap' must be one of: claim, contradiction, unsaid, audit$"),
        ({"kind": ""}, r"line 3, row 'b': kind='' must be one of: claim, contradiction, unsaid, audit$"),
        ({"kind": "unsaid", "note": "n"}, r"line 3, row 'b': verdict='pending' must be empty, for kind='unsaid'"),
        ({"kind": "contradiction", "verdict": "", "note": " "}, r"row 'b': note is empty; a row of kind='contradi"),
        ({"statement": " "}, r"line 3: statement is empty"),
        ({"id": "a"}, r"line 3: id='a' stands in line 2"),
        ({"value": "fast"}, r"line 3: value='fast' is not a number"),
        ({"unit": ""}, r"line 3: value=2 has no unit"),
        ({"use_case": "Medium"}, r"line 3: use_case='Medium'"),
        ({"notebook": ""}, r"line 3: a pending claim must name the notebook"),
    ],
)
def test_a_faulty_claim_is_refused_with_file_and_line(tmp_path: Path, change: dict[str, str], message: str) -> None:
    root = ledger(tmp_path, GOOD, {**GOOD, "id": "b", **change})
    with pytest.raises(PublishedError, match=message):
        read_claims(root)


def test_a_claim_whose_verdict_function_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {**GOOD, "notebook": "04_hybrid_parallelism", "verdict": "hybrid_gpu_speedup"}
    root = ledger(tmp_path, own)
    monkeypatch.setattr(registry, "read_claims", lambda: read_claims(root))
    assert len(checked_claims()) == 1
    for notebook in ("02_threads_vs_processes", "09_to_come", ""):  # the function is one of notebook 04's own
        root = ledger(tmp_path / f"of {notebook}", GOOD, {**own, "id": "b", "notebook": notebook})
        with pytest.raises(PublishedError, match="claim 'b': verdict='hybrid_gpu_speedup' is no verdict function"):
            checked_claims()


def test_other_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishedError, match="line 1: columns"):
        read_claims(ledger(tmp_path, GOOD, columns=CLAIM_COLUMNS[:-1]))


def test_a_row_of_another_length_is_refused(tmp_path: Path) -> None:
    root = ledger(tmp_path, GOOD)
    with (root / "data" / "published" / "claims.csv").open("a") as stream:
        stream.write("a,b\n")
    with pytest.raises(PublishedError, match="line 3: 2 values instead of 11"):
        read_claims(root)


def test_missing_table_names_those_there_are() -> None:
    with pytest.raises(PublishedError, match=r"table9.*single-to-multi-table1"):
        read_table("single-to-multi", "table9")


def test_the_root_is_found_from_below_and_missed_elsewhere(tmp_path: Path) -> None:
    root = repository_root()
    assert repository_root(root / "data" / "published") == root
    with pytest.raises(PlaceError, match="pyproject"):
        repository_root(tmp_path)
