"""Chakra execution traces from real profiles: convert, validate, repair, slice, analyze, simulate, export.

Everything that a user needs is here; each name is loaded when it is first used, so that importing the package is cheap.

Example:
    >>> import chakra_et as chakra
    >>> chakra.NodeType.COMM_COLL_NODE.value
    7
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chakra_et.analysis.analyze import Analyses, analyze
    from chakra_et.analysis.diff import Diff, diff
    from chakra_et.analysis.options import Options as AnalysisOptions
    from chakra_et.conversion import (
        ConversionResult,
        ConvertOptions,
        Failure,
        Quality,
        RankQuality,
        convert,
        convert_to,
    )
    from chakra_et.errors import (
        ChakraError,
        FormatError,
        InputError,
        MismatchError,
        MissingExtraError,
        OutputError,
        ReplayError,
        SimulationError,
        TraceError,
    )
    from chakra_et.io import read_set as load
    from chakra_et.io import write_set as save
    from chakra_et.ir import COLUMNS, CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceMetadata, TraceSet
    from chakra_et.passes.fuse import fuse
    from chakra_et.passes.match_comms import Matching, match_comms
    from chakra_et.passes.reconstruct import Reconstruction, reconstruct
    from chakra_et.passes.repair import Change, repair
    from chakra_et.passes.select import select_ids, select_iteration, select_time
    from chakra_et.reports.analysis_html import export_report
    from chakra_et.reports.dot import export_dot, export_graphml
    from chakra_et.reports.perfetto import export_perfetto
    from chakra_et.reports.sweep_html import export_sweep_html
    from chakra_et.sample import sample_folder
    from chakra_et.sim.astra import AstraOptions, simulate_astra
    from chakra_et.sim.astra_sim import export_astra_sim
    from chakra_et.sim.options import SimulateOptions
    from chakra_et.sim.result import SimResult
    from chakra_et.sim.simulate import simulate
    from chakra_et.sim.sweep import sweep
    from chakra_et.sim.sweep_result import SweepResult
    from chakra_et.specs import AstraConfig, System, load_system, read_astra_config
    from chakra_et.validation import Finding, ValidationReport, validate

__version__ = "0.1.0"

# Name here -> the module it lives in, and its name there where that differs.
_EXPORTS: dict[str, str] = {
    "Analyses": "chakra_et.analysis.analyze",
    "AnalysisOptions": "chakra_et.analysis.options:Options",
    "AstraConfig": "chakra_et.specs",
    "AstraOptions": "chakra_et.sim.astra",
    "COLUMNS": "chakra_et.ir",
    "ChakraError": "chakra_et.errors",
    "Change": "chakra_et.passes.repair",
    "CommType": "chakra_et.ir",
    "ConversionResult": "chakra_et.conversion",
    "ConvertOptions": "chakra_et.conversion",
    "Diff": "chakra_et.analysis.diff",
    "Failure": "chakra_et.conversion",
    "Finding": "chakra_et.validation",
    "FormatError": "chakra_et.errors",
    "InputError": "chakra_et.errors",
    "Matching": "chakra_et.passes.match_comms",
    "MismatchError": "chakra_et.errors",
    "MissingExtraError": "chakra_et.errors",
    "NodeType": "chakra_et.ir",
    "OutputError": "chakra_et.errors",
    "ProcessGroup": "chakra_et.ir",
    "Quality": "chakra_et.conversion",
    "RankQuality": "chakra_et.conversion",
    "ReplayError": "chakra_et.errors",
    "Reconstruction": "chakra_et.passes.reconstruct",
    "SimResult": "chakra_et.sim.result",
    "SimulateOptions": "chakra_et.sim.options",
    "SimulationError": "chakra_et.errors",
    "SweepResult": "chakra_et.sim.sweep_result",
    "System": "chakra_et.specs",
    "Trace": "chakra_et.ir",
    "TraceBuilder": "chakra_et.ir",
    "TraceError": "chakra_et.errors",
    "TraceMetadata": "chakra_et.ir",
    "TraceSet": "chakra_et.ir",
    "ValidationReport": "chakra_et.validation",
    "analyze": "chakra_et.analysis.analyze",
    "convert": "chakra_et.conversion",
    "convert_to": "chakra_et.conversion",
    "diff": "chakra_et.analysis.diff",
    "export_astra_sim": "chakra_et.sim.astra_sim",
    "export_dot": "chakra_et.reports.dot",
    "export_graphml": "chakra_et.reports.dot",
    "export_perfetto": "chakra_et.reports.perfetto",
    "export_report": "chakra_et.reports.analysis_html",
    "export_sweep_html": "chakra_et.reports.sweep_html",
    "fuse": "chakra_et.passes.fuse",
    "load": "chakra_et.io:read_set",
    "load_system": "chakra_et.specs",
    "match_comms": "chakra_et.passes.match_comms",
    "read_astra_config": "chakra_et.specs",
    "reconstruct": "chakra_et.passes.reconstruct",
    "repair": "chakra_et.passes.repair",
    "sample_folder": "chakra_et.sample",
    "save": "chakra_et.io:write_set",
    "select_ids": "chakra_et.passes.select",
    "select_iteration": "chakra_et.passes.select",
    "select_time": "chakra_et.passes.select",
    "simulate": "chakra_et.sim.simulate",
    "simulate_astra": "chakra_et.sim.astra",
    "sweep": "chakra_et.sim.sweep",
    "validate": "chakra_et.validation",
}

__all__ = [
    "COLUMNS",
    "Analyses",
    "AnalysisOptions",
    "AstraConfig",
    "AstraOptions",
    "ChakraError",
    "Change",
    "CommType",
    "ConversionResult",
    "ConvertOptions",
    "Diff",
    "Failure",
    "Finding",
    "FormatError",
    "InputError",
    "Matching",
    "MismatchError",
    "MissingExtraError",
    "NodeType",
    "OutputError",
    "ProcessGroup",
    "Quality",
    "RankQuality",
    "Reconstruction",
    "ReplayError",
    "SimResult",
    "SimulateOptions",
    "SimulationError",
    "SweepResult",
    "System",
    "Trace",
    "TraceBuilder",
    "TraceError",
    "TraceMetadata",
    "TraceSet",
    "ValidationReport",
    "__version__",
    "analyze",
    "convert",
    "convert_to",
    "diff",
    "export_astra_sim",
    "export_dot",
    "export_graphml",
    "export_perfetto",
    "export_report",
    "export_sweep_html",
    "fuse",
    "load",
    "load_system",
    "match_comms",
    "read_astra_config",
    "reconstruct",
    "repair",
    "sample_folder",
    "save",
    "select_ids",
    "select_iteration",
    "select_time",
    "simulate",
    "simulate_astra",
    "sweep",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'chakra_et' has no attribute '{name}'")
    module, _, attribute = _EXPORTS[name].partition(":")
    value = getattr(import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
