"""Figures from records alone: nothing here trains, and drawing twice gives the same files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lockstep import alphabeta, baselines, distribution, spark_tables, summaries
from lockstep.analysis import AnalysisError
from lockstep.figures.bars import exchange_bars, input_bars, memory_bars, phase_stack, speedup_bars
from lockstep.figures.batch_size import BATCH_SIZE
from lockstep.figures.clusters import link_lines, message_lines, network_bars, ranking_points
from lockstep.figures.learning import accuracy_lines, gap_lines, published_accuracies, time_lines
from lockstep.figures.lines import resource_traces, scaling_lines
from lockstep.figures.overview import published_beside_measured, verdict_bars
from lockstep.figures.pipelines import pipeline_diagram, prediction_bars, schedule_lines
from lockstep.figures.scaling import (
    flops_bars,
    forecast_lines,
    model_points,
    scaling_panels,
    table3_lines,
    workers_accuracy,
)
from lockstep.figures.scaling_drawings import SCALING
from lockstep.figures.settings import confusion_maps, operator_stacks, paired_points, ratio_points, setting_points
from lockstep.figures.single_node import ladder_bars, operator_bars, roofline, step_stack
from lockstep.figures.spark import data_lines, parts_stack, start_bars
from lockstep.figures.stages import hybrid_map, partition_bars, stage_memory_bars
from lockstep.figures.style import data_label, save_figure
from lockstep.pipelines import forecasts, hybrids
from lockstep.pipelines import tables as pipelines
from lockstep.published import read_table

__all__ = [
    "FIGURES",
    "accuracy_lines",
    "confusion_maps",
    "data_label",
    "data_lines",
    "exchange_bars",
    "flops_bars",
    "forecast_lines",
    "gap_lines",
    "hybrid_map",
    "input_bars",
    "ladder_bars",
    "link_lines",
    "memory_bars",
    "message_lines",
    "model_points",
    "network_bars",
    "operator_bars",
    "operator_stacks",
    "paired_points",
    "partition_bars",
    "parts_stack",
    "phase_stack",
    "pipeline_diagram",
    "prediction_bars",
    "published_accuracies",
    "published_beside_measured",
    "ranking_points",
    "ratio_points",
    "render_all",
    "resource_traces",
    "roofline",
    "save_figure",
    "scaling_lines",
    "scaling_panels",
    "schedule_lines",
    "setting_points",
    "speedup_bars",
    "stage_memory_bars",
    "start_bars",
    "step_stack",
    "table3_lines",
    "time_lines",
    "verdict_bars",
    "workers_accuracy",
]

Tables = Mapping[str, pd.DataFrame]
Drawing = Callable[[pd.DataFrame, Tables], Figure]


class FigureError(ValueError):
    """A notebook without figures; the message names those that have some."""


def _speedup(records: pd.DataFrame, _: Tables) -> Figure:
    published = read_table("single-to-multi", "table1")
    return speedup_bars(summaries.summary_table(records), published, "Speedup of data parallelism on one node")


def _scaling(records: pd.DataFrame, _: Tables) -> Figure:
    # Workers beyond the budget of cores of Table 1 share cores: the ideal must not grow with them.
    table1 = records[records["experiment"] == "table1"]
    budget = int((table1["workers"] * table1["cores_per_worker"]).max()) if len(table1) else None
    table = summaries.scaling_table(records, most_cores=budget)
    fixed = len(table) and table[table["strategy"] != "sequential"]["cores"].nunique() == 1
    return scaling_lines(table, "One budget of cores, split over more workers" if fixed else "Speedup against workers")


def _memory(records: pd.DataFrame, _: Tables) -> Figure:
    return memory_bars(summaries.memory_table(records), "Memory of each strategy")


def _input(records: pd.DataFrame, _: Tables) -> Figure:
    return input_bars(summaries.input_table(records), "What JPEG input costs")


def _phases(records: pd.DataFrame, _: Tables) -> Figure:
    return phase_stack(summaries.phase_table(records), "Where a step's time goes")


def _exchange(records: pd.DataFrame, _: Tables) -> Figure:
    return exchange_bars(summaries.exchange_table(records), "Agreeing on the parameters: reduce + update alone")


def _traces(experiment: str) -> Drawing:
    def draw(records: pd.DataFrame, tables: Tables) -> Figure:
        rows = records[records["experiment"] == experiment]
        about = data_label(rows) if len(rows) else ""
        return resource_traces(_table(tables, "resources"), "Resources while training", experiment, about)

    return draw


def _table(tables: Tables, name: str) -> pd.DataFrame:
    return tables.get(name, pd.DataFrame())


def _ladder(records: pd.DataFrame, _: Tables) -> Figure:
    return ladder_bars(baselines.ladder_table(records), "One ingredient at a time")


def _steps(records: pd.DataFrame, _: Tables) -> Figure:
    return step_stack(baselines.ladder_table(records), "Where a step's time goes")


def _roofline(records: pd.DataFrame, tables: Tables) -> Figure:
    operators = baselines.operator_table(records, _table(tables, "operators"))
    return roofline(baselines.roof_table(records), operators, "How near the machine's roofs")


def _operators(records: pd.DataFrame, tables: Tables) -> Figure:
    operators = baselines.operator_table(records, _table(tables, "operators"))
    return operator_bars(operators, "Operators of a forward and backward pass")


def _ranking(records: pd.DataFrame, _: Tables) -> Figure:
    return ranking_points(distribution.ranking_table(records), "Does one host's ranking hold on two?")


def _distributed(experiment: str, title: str) -> Drawing:
    def draw(records: pd.DataFrame, _: Tables) -> Figure:
        published = read_table("single-to-multi", "table3")
        return speedup_bars(distribution.speedup_table(records, experiment), published, title)

    return draw


def _messages(records: pd.DataFrame, _: Tables) -> Figure:
    try:
        link = alphabeta.link_of(records)
    except AnalysisError:  # no emulated cluster there
        link = None
    tables = {
        "one host": alphabeta.message_table(records, "collective"),
        "two hosts, emulated link": alphabeta.message_table(records, "wire", link),
    }
    return message_lines(tables, "Agreeing on a message", link)


def _links(records: pd.DataFrame, _: Tables) -> Figure:
    return link_lines(distribution.link_table(records), "Where does it pay?")


def _network(records: pd.DataFrame, _: Tables) -> Figure:
    return network_bars(distribution.network_table(records), "What a step puts on the network")


def _spark_speedup(records: pd.DataFrame, _: Tables) -> Figure:
    published = read_table("single-to-multi", "table3")
    return speedup_bars(spark_tables.variant_table(records), published, "Spark, MPI and one core", fitted=True)


def _spark_parts(records: pd.DataFrame, tables: Tables) -> Figure:
    return parts_stack(spark_tables.parts_table(records, tables.get("spark")), "Where a step's time goes")


def _spark_data(records: pd.DataFrame, _: Tables) -> Figure:
    return data_lines(spark_tables.data_table(records), "Does more data make it slower?")


def _starts(records: pd.DataFrame, _: Tables) -> Figure:
    return start_bars(distribution.start_table(records), "Until training can begin")


def _spark_traces(records: pd.DataFrame, tables: Tables) -> Figure:
    return _traces(spark_tables.SPEEDUP)(records, {"resources": spark_tables.shown_traces(tables.get("resources"))})


def _split(experiment: str, title: str) -> Drawing:
    def draw(records: pd.DataFrame, _: Tables) -> Figure:
        published = read_table("single-to-multi", "table2")
        return speedup_bars(pipelines.speedup_table(records, experiment), published, title)

    return draw


def _schedules(records: pd.DataFrame, _: Tables) -> Figure:
    table = pipelines.speedup_table(records, "schedules", pipelines.NAIVE)
    return schedule_lines(table, "Schedules and micro-batches")


def _diagram(_: pd.DataFrame, tables: Tables) -> Figure:
    shown = pipelines.shown_cells(_table(tables, "actions"))
    return pipeline_diagram(shown, "What each rank does in a step")


def _predicted(records: pd.DataFrame, tables: Tables) -> Figure:
    return prediction_bars(forecasts.prediction_table(records, tables), "Predicted from stages that were timed alone")


def _stage_memory(_: pd.DataFrame, tables: Tables) -> Figure:
    return stage_memory_bars(pipelines.memory_table(_table(tables, "stages")), "What a rank holds")


def _partition(records: pd.DataFrame, tables: Tables) -> Figure:
    return partition_bars(forecasts.partition_table(records, tables), "Where to cut")


def _costs(records: pd.DataFrame, tables: Tables) -> Figure:
    table = hybrids.cost_table(records, _table(tables, "layers"))
    return prediction_bars(table, "What the cost model says of this machine", hybrids.way_names(table))


def _map(records: pd.DataFrame, tables: Tables) -> Figure:
    return hybrid_map(hybrids.whole_map(records, _table(tables, "layers")), "When should a hybrid pay?")


FIGURES: Mapping[str, Mapping[str, Drawing]] = {
    "01_single_node_baselines": {
        "ladder": _ladder,
        "steps": _steps,
        "roofline": _roofline,
        "operators": _operators,
        "resources": _traces("ladder"),
    },
    "02_threads_vs_processes": {
        "speedup": _speedup,
        "scaling": _scaling,
        "memory": _memory,
        "input": _input,
        "phases": _phases,
        "exchange": _exchange,
        "resources": _traces("table1"),
    },
    "03_pipelined_model_parallelism": {
        "speedup": _split("speedup", "Model parallelism on one machine"),
        "schedules": _schedules,
        "diagram": _diagram,
        "predicted": _predicted,
        "memory": _stage_memory,
        "partition": _partition,
        "resources": _traces("speedup"),
    },
    "04_hybrid_parallelism": {
        "speedup": _split("hybrid", "Data, model, or both"),
        "predicted": _costs,
        "map": _map,
        "resources": _traces("hybrid"),
    },
    "05_mpi_distribution": {
        "ranking": _ranking,
        "weak": _distributed("weak", "Every sync, the batch growing with the workers"),
        "strong": _distributed("strong", "Every sync, the global batch staying"),
        "messages": _messages,
        "links": _links,
        "network": _network,
        "resources": _traces("timeline"),
    },
    "06_spark_distribution": {
        "speedup": _spark_speedup,
        "parts": _spark_parts,
        "data": _spark_data,
        "start": _starts,
        "resources": _spark_traces,
    },
    "07_convlstm_batch_size": BATCH_SIZE,
    "08_convlstm_scaling": SCALING,
}
"""Notebook -> file name -> drawing of its records and traced tables."""


def render_all(notebook: str, records: pd.DataFrame, tables: Tables, out_folder: str | Path) -> list[Path]:
    """Draws every figure of a notebook into `out_folder` as PNG and SVG; returns the paths.

    Raises FigureError for a notebook without figures, RecordError if a file can't be written.
    """
    if notebook not in FIGURES:
        raise FigureError(f"{notebook!r} has no figures; there are: {', '.join(FIGURES)}")
    paths: list[Path] = []
    for name, draw in FIGURES[notebook].items():
        paths += save_figure(draw(records, tables), out_folder, name)
    return paths
