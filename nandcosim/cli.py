"""The command line: a thin skin over the Python interface.

Exit codes: 0 done, 1 failed, 2 wrong use. An error is one line on stderr.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nandcosim import __version__
from nandcosim.errors import InputError, NandcosimError, SimulationError
from nandcosim.studies import split_settings

__all__ = ["main"]

PATH = click.Path(path_type=Path)
SETTINGS = click.option(
    "--set", "settings", multiple=True, metavar="K=V", help="Set a parameter; may be repeated."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
TRUST = click.option(
    "--trust-netlist",
    is_flag=True,
    help="Accept a netlist that lets ngspice run commands (.control and the like).",
)
OSDI = click.option(
    "--osdi",
    type=PATH,
    multiple=True,
    metavar="FILE",
    expose_value=False,
    callback=lambda _context, _option, paths: _load_osdi(paths),
    help="Load a compiled Verilog-A model, a program you trust; may be repeated.",
)
SYSTEM = click.Choice(["dnova", "nasic", "nvllm"])
CONFIG = click.option(
    "--config", type=PATH, metavar="F.toml", help="Configuration; --set overrides it."
)
CORPUS = click.option("--corpus", help="Of dnova: shipped name or your path. [default: wordnet]")
TABLES = click.option(
    "--tables", type=PATH, metavar="DIR", help="Calibration tables; default: shipped."
)
SECONDS = click.FloatRange(min=0, min_open=True)
BACKEND = click.option(
    "--backend",
    type=click.Choice(["shared", "process"]),
    default="shared",
    show_default=True,
    help="libngspice in this process, or one ngspice process a run.",
)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nandcosim")
@click.pass_context
def cli(context: click.Context) -> None:
    """Circuit-to-system co-simulation of 3D-NAND accelerators."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@cli.command()
@AS_JSON
@OSDI
def doctor(as_json: bool) -> None:
    """Say what was found, what is missing and how to get it."""
    from nandcosim.spice.doctor import examine

    checks = examine()
    if as_json:
        _print_json([check.to_dict() for check in checks])
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "ok     " if check.ok else ("MISSING" if check.required else "-      ")
            click.echo(f"{mark} {check.name:<{width}}  {check.detail}")
    if any(check.required and not check.ok for check in checks):
        raise SystemExit(1)


@cli.command()
@click.argument("circuit", required=False)
@AS_JSON
def circuits(circuit: str | None, as_json: bool) -> None:
    """List the circuits, or one circuit's parameters, knobs and responses."""
    from nandcosim.report.listing import circuit_listing, describe_circuit
    from nandcosim.sweep.registry import circuit_names, load_circuit

    names = [circuit] if circuit else list(circuit_names())
    described = [describe_circuit(load_circuit(name)) for name in names]
    if as_json:
        _print_json(described)
    else:
        click.echo(circuit_listing(described))


@cli.command()
@click.argument("circuit")
@SETTINGS
@TRUST
def netlist(circuit: str, settings: tuple[str, ...], trust_netlist: bool) -> None:
    """Print a complete deck that ngspice -b runs as it is."""
    from nandcosim.spice.deck import build_deck

    found, params = _circuit(circuit, settings, trust_netlist)
    click.echo(build_deck(found, params).text(found.measures(params)), nl=False)


@cli.command()
@click.argument("circuit")
@SETTINGS
@click.option("--plot", type=PATH, metavar="FILE", help="Write a picture of the waveforms.")
@BACKEND
@click.option(
    "--time-limit", type=SECONDS, default=60.0, show_default=True, help="Seconds the run may take."
)
@AS_JSON
@TRUST
@OSDI
def simulate(
    circuit: str,
    settings: tuple[str, ...],
    plot: Path | None,
    backend: Any,
    time_limit: float,
    as_json: bool,
    trust_netlist: bool,
) -> None:
    """Simulate one circuit and print what it measures."""
    from nandcosim.report.listing import response_lines
    from nandcosim.report.waveforms import plot_waveforms
    from nandcosim.spice.engine import Engine
    from nandcosim.spice.status import Status

    found, params = _circuit(circuit, settings, trust_netlist)
    outcome = Engine(backend, time_limit).sample(found, params)
    if plot is not None and outcome.waveforms.scale:
        title = f"{found.name}  {'  '.join(settings)}".strip()
        plot_waveforms(outcome.waveforms, found.marks(params), title, plot)
    if as_json:
        _print_json(
            {
                "circuit": found.name,
                "status": outcome.status.label,
                "reason": outcome.reason,
                "responses": {k: _finite(v) for k, v in outcome.responses.items()},
                "cpu_seconds": outcome.cpu_seconds,
            }
        )
    else:
        click.echo(response_lines(found, outcome))
    if outcome.status is not Status.OK:
        raise SimulationError(f"{found.name}: {outcome.status.label}: {outcome.reason}")


@cli.command()
@click.argument("circuit")
@SETTINGS
@click.option(
    "--out", type=PATH, required=True, metavar="FILE", help="Level map, made or added to."
)
@BACKEND
@AS_JSON
@TRUST
@OSDI
def calibrate(
    circuit: str,
    settings: tuple[str, ...],
    out: Path,
    backend: Any,
    as_json: bool,
    trust_netlist: bool,
) -> None:
    """Place a circuit's threshold levels half a level either side of its decision boundary."""
    from nandcosim.spice.engine import Engine

    found, params = _circuit(circuit, settings, trust_netlist)
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: no folder {out.parent}")
    values = found.calibrate(params, Engine(backend), out)
    if as_json:
        _print_json(values)
    else:
        for name, value in values.items():
            click.echo(f"{name} = {value:.6f} V, written to {out}")


@cli.command()
@click.argument("spec", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="S.zarr", help="The store.")
@click.option("--workers", type=click.IntRange(min=1), help="Local worker processes.")
@click.option("--scheduler", metavar="ADDR", help="An existing Dask scheduler, tcp://host:8786.")
@click.option("--cluster", type=PATH, metavar="F.toml", help="Jobs of a queue: SLURM, PBS, LSF.")
@click.option("--retry-failed", is_flag=True, help="Also run failed samples again.")
@BACKEND
@click.option(
    "--time-limit", type=SECONDS, default=60.0, show_default=True, help="Seconds a sample may take."
)
@AS_JSON
@TRUST
@OSDI
def sweep(
    spec: Path,
    out: Path,
    workers: int | None,
    scheduler: str | None,
    cluster: Path | None,
    retry_failed: bool,
    backend: Any,
    time_limit: float,
    as_json: bool,
    trust_netlist: bool,
) -> None:
    """Run a sweep, or continue it: the same command again runs what is missing."""
    from nandcosim.report.listing import status_lines
    from nandcosim.sweep import run_sweep
    from nandcosim.sweep import status as sweep_status

    _trust(trust_netlist)
    _show_log()
    _stop_in_order()
    places = {"--workers": workers, "--scheduler": scheduler, "--cluster": cluster}
    given = [name for name, value in places.items() if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other; give one of them")
    run_sweep(
        spec,
        out,
        workers=workers,
        scheduler=scheduler,
        cluster=cluster,
        retry_failed=retry_failed,
        backend=backend,
        time_limit=time_limit,
        progress=True,
    )
    found = sweep_status(out)
    _print_json(found) if as_json else click.echo(status_lines(found))


@cli.command()
@click.argument("store", type=PATH)
@AS_JSON
def status(store: Path, as_json: bool) -> None:
    """Count a store's samples by outcome and reason."""
    from nandcosim.report.listing import status_lines
    from nandcosim.sweep import status as sweep_status

    found = sweep_status(store)
    _print_json(found) if as_json else click.echo(status_lines(found))


@cli.command(name="reproduce-sample")
@click.argument("store", type=PATH)
@click.argument("sample", type=int)
@click.option("--out", type=PATH, metavar="DIR", help="Deck and waveforms. [default: sample_K]")
@click.option(
    "--backend",
    type=click.Choice(["shared", "process"]),
    help="[default: that of the store's last run]",
)
@click.option(
    "--time-limit", type=SECONDS, default=60.0, show_default=True, help="Seconds the run may take."
)
@AS_JSON
@TRUST
@OSDI
def reproduce_sample(
    store: Path,
    sample: int,
    out: Path | None,
    backend: Any,
    time_limit: float,
    as_json: bool,
    trust_netlist: bool,
) -> None:
    """Make one sample of a store again: its deck, its waveforms, what it measures."""
    from nandcosim.report.listing import reproduction_lines
    from nandcosim.report.waveforms import plot_waveforms
    from nandcosim.sweep.reproduce import reproduce

    _trust(trust_netlist)
    folder = out or Path(f"sample_{sample}")
    found = reproduce(store, sample, folder, backend=backend, time_limit=time_limit)
    if found.waveforms is not None and found.waveforms.scale:
        plot_waveforms(found.waveforms, found.marks, found.title, folder / "waveforms.png")
    _print_json(found.to_dict()) if as_json else click.echo(reproduction_lines(found))
    if not found.same:
        raise SimulationError(f"sample {sample}: differs from what {store} holds")


@cli.command()
@click.argument("store", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="T.nc", help="The table.")
@click.option(
    "--allow-partial",
    is_flag=True,
    help="Fit although samples have not been run, or a plan is not complete.",
)
@click.option(
    "--max-failed",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="Largest accepted fraction of failures.",
)
def fit(store: Path, out: Path, allow_partial: bool, max_failed: float) -> None:
    """Fit a calibration table to a finished sweep."""
    from nandcosim.tables import fit as fit_table
    from nandcosim.tables import render_summary, summarise

    found = fit_table(store, allow_partial=allow_partial, max_failed=max_failed)
    found.to_netcdf(out)
    click.echo(render_summary(summarise(found)))


@cli.command()
@click.argument("file", type=PATH)
@click.option("--plot", type=PATH, metavar="FILE", help="Write a picture of the table.")
@AS_JSON
def table(file: Path, plot: Path | None, as_json: bool) -> None:
    """Show a table's axes, ranges, counts and residuals."""
    from nandcosim.tables import open_table, render_summary, summarise
    from nandcosim.tables import plot as plot_table

    found = open_table(file)
    if plot is not None:
        plot_table(found, plot)
    summary = summarise(found)
    _print_json(summary) if as_json else click.echo(render_summary(summary))


@cli.command()
@click.argument("file", type=PATH)
@click.option(
    "--to",
    required=True,
    type=click.Choice(["csv", "json", "netcdf", "verilog-a"]),
    help="Target format.",
)
@click.option("--out", type=PATH, metavar="FILE", help="Default: beside the table.")
def export(file: Path, to: str, out: Path | None) -> None:
    """Export a table for other tools."""
    from nandcosim.tables import export as export_table
    from nandcosim.tables import open_table

    suffix = {"verilog-a": ".va", "netcdf": ".copy.nc"}.get(to, f".{to}")
    for path in export_table(open_table(file), to, out or file.with_suffix(suffix)):
        click.echo(f"wrote {path}")


@cli.command(name="eval")
@click.argument("system", type=SYSTEM)
@CONFIG
@SETTINGS
@CORPUS
@TABLES
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Results and page.")
@AS_JSON
def evaluate(
    system: str,
    config: Path | None,
    settings: tuple[str, ...],
    corpus: str | None,
    tables: Path | None,
    out: Path,
    as_json: bool,
) -> None:
    """Evaluate a system; --set k=a,b,c makes k an axis of the result."""
    import xarray as xr

    from nandcosim import evaluations
    from nandcosim.report.experts import expert_rows
    from nandcosim.report.folder import report as write_report
    from nandcosim.report.inference import inference_rows
    from nandcosim.report.retrieval import recall_rows

    configuration = _configuration(system, config, settings)
    workload = _corpus(system, corpus)
    if system == "dnova":
        result, rows = evaluations.retrieval(configuration, workload, out, tables), recall_rows
    elif system == "nvllm":
        result, rows = evaluations.inference(configuration, out, tables), inference_rows
    else:
        result, rows = evaluations.experts(configuration, out, tables), expert_rows
    page = write_report(out)
    found = xr.load_dataset(result, engine="h5netcdf")
    if as_json:
        _print_json(rows(found))
        return
    source = f"tables of {tables}" if tables else "shipped tables"
    if system == "dnova":
        used = "noise" if configuration.uses_table else ""
    else:
        used = "circuit's figures" if json.loads(found.attrs["tables"]) else ""
    click.echo(f"wrote {result} and {page}{f', {used} from the {source}' if used else ''}")


@cli.command()
@click.argument("texts", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="V.npy", help="Vectors, with ids beside.")
@click.option("--batch-size", type=click.IntRange(min=1), default=32, show_default=True)
@click.option("--precision", type=click.Choice(["fp32", "int8"]), default="fp32", show_default=True)
def encode(texts: Path, out: Path, batch_size: int, precision: Any) -> None:
    """Encode a corpus of your own (.txt, .jsonl, .csv) with all-MiniLM-L6-v2."""
    from nandcosim.systems.dnova.corpus import encode_corpus

    path = encode_corpus(texts, out, batch_size=batch_size, precision=precision, progress=True)
    click.echo(f"wrote {path}")


@cli.command()
@click.argument("corpus")
@click.option("--out", type=PATH, required=True, metavar="A.nc", help="The adapter.")
@SETTINGS
def adapt(corpus: str, out: Path, settings: tuple[str, ...]) -> None:
    """Train D-NOVA's query adapter on a corpus' training split; --set overrides the settings."""
    from nandcosim.progress import counted_progress
    from nandcosim.systems.dnova.adapter_training import TrainingSettings
    from nandcosim.systems.dnova.adapter_training import adapt as train_adapter

    chosen = TrainingSettings.from_settings(split_settings(settings), "--set")
    with counted_progress("adapter", "epochs") as show:
        trained = train_adapter(corpus, out, chosen, progress=show)
    recalls = trained.provenance["history"]["validation_recall"]
    best = trained.provenance["best_epoch"]
    click.echo(
        f"wrote {out}: recall@100 on the validation queries {recalls[0]:.4f} without it, "
        f"{recalls[best]:.4f} after epoch {best}"
    )


@cli.command()
@click.argument("paper", required=False)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure again what is stored with the package (an hour; needs the larger corpora).",
)
@click.option("--only", metavar="ID,ID", help="These claims alone.")
@click.option("--out", type=PATH, metavar="F.json", help="With --measure: where to store it.")
@AS_JSON
def claims(
    paper: str | None, measure: bool, only: str | None, out: Path | None, as_json: bool
) -> None:
    """Check the papers' figures one by one: theirs, ours, the verdict and why."""
    from nandcosim.claims import check, claim_lines, papers

    if out is not None and not measure:
        raise InputError("--out stores what --measure finds; give both")
    chosen = None if only is None else [part.strip() for part in only.split(",")]
    if chosen is not None and paper is None:
        raise InputError("--only names claims of one paper; give the paper too")
    found = {
        name: check(name, measure=measure, only=chosen, store=out, progress=True)
        for name in ([paper] if paper else papers())
    }
    if as_json:
        _print_json({name: [one.row() for one in all_] for name, all_ in found.items()})
    else:
        click.echo("\n\n".join(f"{name}\n{claim_lines(all_)}" for name, all_ in found.items()))


@cli.command()
@click.argument("system", type=SYSTEM)
@click.option("--samples", type=click.IntRange(min=1), required=True, help="Decisions replayed.")
@CONFIG
@SETTINGS
@CORPUS
@TABLES
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="Local worker processes.")
@click.option("--out", type=PATH, metavar="DIR", help="Write the decisions there.")
@AS_JSON
def audit(
    system: str,
    samples: int,
    config: Path | None,
    settings: tuple[str, ...],
    corpus: str | None,
    tables: Path | None,
    seed: int,
    workers: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Replay decisions of a system's run in ngspice and count disagreements."""
    from nandcosim.audit import audit_dnova, audit_lines, audit_nasic, audit_nvllm, audit_rows
    from nandcosim.systems import dnova
    from nandcosim.tables import load_tables

    configuration = _configuration(system, config, settings)
    workload = _corpus(system, corpus)
    options: dict[str, Any] = {
        "samples": samples, "seed": seed, "workers": workers, "progress": True
    }  # fmt: skip
    loaded = load_tables(tables)
    if system == "dnova":
        found = audit_dnova(configuration, dnova.load_corpus(workload), loaded, **options)
    else:
        replay = audit_nvllm if system == "nvllm" else audit_nasic
        found = replay(configuration, loaded, **options)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        found.to_netcdf(out / f"audit_{system}.nc", engine="h5netcdf")
    _print_json(audit_rows(found)) if as_json else click.echo(audit_lines(found))


@cli.command()
@click.argument("folder", type=PATH)
def report(folder: Path) -> None:
    """Write one self-contained HTML page of the results in a folder."""
    from nandcosim.report.folder import report as write_report

    click.echo(f"wrote {write_report(folder)}")


@cli.command()
@click.option(
    "--out", type=PATH, default=Path("demo"), show_default=True, help="Folder of the results."
)
def demo(out: Path) -> None:
    """Run the main line end to end on real input."""
    from nandcosim.demo import demo as run_demo

    click.echo(f"wrote {run_demo(out, click.echo)}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        cli.main(args=arguments, prog_name="nandcosim", standalone_mode=False)
    except NandcosimError as error:
        click.echo(f"nandcosim: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"nandcosim: {error.format_message()}", err=True)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        click.echo("nandcosim: interrupted; what a sweep has stored stays stored", err=True)
        sys.exit(130)
    except OSError as error:  # a full disk, a folder that is a file; click ends a closed pipe
        where = f"{error.filename}: " if error.filename is not None else ""
        click.echo(f"nandcosim: {where}{error.strerror or error}", err=True)
        sys.exit(1)


def _circuit(name: str, settings: tuple[str, ...], trust: bool) -> tuple[Any, Any]:
    from nandcosim.spice.settings import circuit_params
    from nandcosim.sweep.registry import load_circuit

    _trust(trust)
    circuit = load_circuit(name)
    return circuit, circuit_params(circuit, split_settings(settings), "--set")


def _configuration(system: str, config: Path | None, settings: tuple[str, ...]) -> Any:
    import nandcosim

    kind = getattr(nandcosim, system).Config
    chosen = split_settings(settings)
    return kind.from_toml(config, chosen) if config else kind.from_settings(chosen, "--set")


def _corpus(system: str, corpus: str | None) -> str:
    """The corpus of D-NOVA; other systems have none."""
    if system != "dnova" and corpus is not None:
        raise InputError(f"--corpus {corpus}: {system} searches none; only dnova takes it")
    return corpus or "wordnet"


def _trust(trust: bool) -> None:
    from nandcosim.spice.netlists import TRUST_VARIABLE

    if trust:  # through the environment, so that worker processes inherit it
        os.environ[TRUST_VARIABLE] = "1"


def _show_log() -> None:
    """Print what the package logs: the dashboard's address, refused workers, set-aside samples."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("nandcosim: %(message)s"))
    logger = logging.getLogger("nandcosim")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _stop_in_order() -> None:
    """Take a plain kill, and the end of a login, as Ctrl-C: workers and jobs are ended too."""
    import signal

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_DFL:  # with nohup it is ignored, and stays so
            signal.signal(each, interrupt)


def _load_osdi(paths: tuple[Path, ...]) -> None:
    from nandcosim.spice.installation import OSDI_VARIABLE

    if paths:  # through the environment, as above
        os.environ[OSDI_VARIABLE] = os.pathsep.join(str(path.absolute()) for path in paths)


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value  # JSON has no NaN


def _print_json(value: Any, write: Callable[[str], None] = click.echo) -> None:
    write(json.dumps(value, indent=2, allow_nan=False))
