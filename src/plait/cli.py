"""plait: run and judge models that answer with interleaved text and images.

    plait run                      answer the miniature queries, score them, show the table
    plait plan CONFIG.toml         what a run would do
    plait report RUN               tables and page of a run directory

This module only reads the command line; what commands do is in `plait.commands`,
which is imported when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from plait import completion
from plait.benchmarks.refused_choices import ChoosingGroup
from plait.benchmarks.terminal import console as _console
from plait.generators.buckets import any_path
from plait.generators.errors import PlaitError, PlaitWarning, UsageError
from plait.generators.extras import require_extra
from plait.generators.secrets import print_error, without_keys
from plait.generators.visible import visible
from plait.options import (
    Address,
    Baseline,
    ChangedData,
    Corrected,
    Data,
    ExecutorOption,
    JsonFile,
    Mode,
    Out,
    OutFolder,
    Protocol,
    Queries,
    Remake,
    Rubric,
    Run,
    RunOrAnswers,
    SameCode,
    Scorers,
    Settings,
    Systems,
    WeightsKind,
    arguments_of,
    data_choices_of,
    pairing_options,
    run_options,
    sensitivity_options,
    with_options,
)

_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors of the machine when files cannot be written: not defects of plait."""


def _end(status: int | None, **_: Any) -> None:
    """End with what a command returns as the exit status."""
    raise typer.Exit(status or 0)


app = typer.Typer(
    result_callback=_end,
    cls=ChoosingGroup,
    help="Run and judge models that answer with interleaved text and images.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bench = typer.Typer(
    help="Measure speed, compare pairings, and test models against known answers."
)
app.add_typer(bench, name="bench")


def _version(requested: bool) -> None:
    if requested:
        from importlib import metadata

        print(f"plait {metadata.version('plait')}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        Option(
            "--version", callback=_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Run and judge models that answer with interleaved text and images."""
    here = os.getcwd()
    if here not in sys.path:
        # Last, so that a user's file never hides a package.
        sys.path.append(here)


@app.command("run")
@with_options(run_options)
def run_command(options: dict[str, Any]) -> int:
    """Answer queries, score the answers, write tables and page.

    Without arguments: queries about a miniature world, answered and judged by the small
    models that come with plait (mini weights). With --data and no system: tiny random
    weights. Running the same command again resumes the run. With --out of an existing
    run, further systems, scorers, queries and repeats are added to it; a different seed,
    weights, prompts or settings are refused, and so are changed data without
    --changed-data. A scorer that can score none of the answers is refused. With --shard,
    the shard that ends last writes the tables and the page.
    """
    from plait import commands

    return commands.run(console=_console(), **arguments_of(options)).exit_status


@app.command("plan")
@with_options(run_options)
def plan_command(options: dict[str, Any]) -> int:
    """Show what `run` would do, what it needs and what it will take.

    First the forecast of wall time, GPU-hours, money, disk and tokens, from rates measured
    in this run and in runs next to it, else from model sizes and the GPU's published peak.
    Then missing API keys and weights, how many answers each scorer can score, jobs by
    stage, GPUs and memory. Nothing is started or written. Exit status 2 where `run` would
    refuse to start.
    """
    from plait import commands

    console = _console()
    plan = commands.plan(console=console, **arguments_of(options))
    plan.show(console)
    return 0 if plan.ready() else 2


@app.command()
def submit(
    config: Annotated[
        Path, Argument(help="TOML file whose [cluster] table describes the job.")
    ],
    to: Annotated[Literal["slurm", "kuberay"], Option(help="The cluster's scheduler.")],
    set_: Settings = None,
    array: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Slurm only: an array of N one-node jobs, each a shard of the run.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        Option("--dry-run", help="Print the script or manifest without submitting it."),
    ] = False,
) -> None:
    """Run a config as a batch job of a cluster.

    On Slurm the script is kept in the run directory; submitted again, it resumes. The job,
    or each of an array, stops and is queued again before its time limit. On Kubernetes it
    is a RayJob.
    """
    from plait import submission

    settings = set_ or ()
    said = submission.submit(config, to, settings, array=array, dry_run=dry_run)
    _console().print(said.rstrip("\n"))


@app.command("score")
def score_command(
    places: RunOrAnswers,
    data: Data = None,
    scorer: Scorers = None,
    weights: WeightsKind = None,
    out: Out = None,
    executor: ExecutorOption = None,
    address: Address = None,
    mode: Mode = None,
    rubric: Rubric = None,
    baseline: Baseline = None,
    set_: Settings = None,
    remake: Remake = False,
    same_code: SameCode = False,
    changed_data: ChangedData = None,
) -> int:
    """Score a run's documents, or anybody's answers to the queries of --data.

    Systems are not run: queries that a run has not answered stay missing. Several places
    are compared side by side, in a run directory of their own, to which the same command
    with other scorers adds. Without --data the queries are those of the first place that
    holds some: answers in MMIE's format, or a run.
    """
    from plait import commands

    flags: dict[str, Any] = {"data": data, "weights": weights, "out": out}
    flags |= {"executor": executor, "address": address}
    flags |= {"mode": mode, "rubric": rubric, "baseline": baseline, "set": set_ or ()}
    flags |= {"remake": remake, "same_code": same_code}
    flags["changed_data"] = data_choices_of(changed_data)
    return commands.score(places, scorer or (), flags, _console()).exit_status


@app.command("check")
def check_command(
    place: Annotated[
        str,
        Argument(
            metavar="DATA|[NAME=][FORMAT:]ANSWERS|RUBRIC.toml",
            help="Queries, as of --data; or with --data, answers to them; or a rubric.",
        ),
    ],
    data: Annotated[
        str | None, Option(help="The queries that answers or a rubric are for.")
    ] = None,
    set_: Settings = None,
) -> int:
    """Show what is understood of your own queries, answers or rubric.

    Each column with what it is taken as, the first ten rows with their images opened, and
    every row that is refused, with its line; of a rubric its criteria and one whole prompt.
    Nothing is run or written. Exit status 1 where a row is refused, 2 where nothing can be
    read.
    """
    from plait.benchmarks import checking

    return checking.run_check(place, data, set_ or (), _console())


@app.command()
def report(
    run: Run,
    queries: Queries = None,
    damaged: Annotated[
        bool,
        Option("--damaged", help="Rebuild results without the records of damaged parts."),
    ] = False,
    correction: Corrected = True,
    out: OutFolder = None,
    show: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
) -> int:
    """Write leaderboard.{json,csv,md,tex} and report.html.

    From the run's results: nothing is answered or scored. Results that are to be made of
    records first are not, without --damaged, where a part of these is damaged.
    """
    from plait import commands

    return commands.report(
        any_path(run),
        _console(),
        queries,
        damaged=damaged,
        corrected=correction,
        out=out,
        show=show,
    )


@app.command()
def pack(
    run: Run,
    file: Annotated[
        Path | None,
        Argument(help="File to write; by default RUN.zip, or RUN.html, in this folder."),
    ] = None,
    html: Annotated[
        bool,
        Option("--html", help="Write only the page, as one self-contained HTML file."),
    ] = False,
    queries: Queries = None,
    max_mb: Annotated[
        float, Option(min=0.1, help="With --html: the largest page allowed, in MB.")
    ] = 50,
    everything: Annotated[
        bool, Option("--all", help="Include the records of all stages.")
    ] = False,
) -> int:
    """Write a run as one file, to be sent or archived.

    Results, tables, page, images and replies, without records of stages, keys, and paths
    of this machine. Every command that reads a run takes the file in its place.
    """
    from plait.benchmarks.runs import packing
    from plait.benchmarks.runs.config import ReportConfig
    from plait.generators.names import validate

    if html and everything:
        raise UsageError(
            "--html writes only the page, which holds no records; use "
            "either --html or --all"
        )
    asked = validate(ReportConfig, {"queries": queries}, "report").queries
    root = any_path(run)
    console = _console()
    if html:
        return packing.pack_page(root, file, console, asked, most_mb=max_mb)
    return packing.pack_run(root, file, console, asked, records=everything)


@app.command()
def forget(
    run: Run,
    system: Annotated[
        list[str] | None, Option(help="A system of the run; may be repeated.")
    ] = None,
    scorer: Annotated[
        list[str] | None, Option(help="A scorer of the run; may be repeated.")
    ] = None,
    prune: Annotated[
        bool,
        Option("--prune", help="Delete records that the run no longer uses."),
    ] = False,
) -> int:
    """Take systems or scorers out of a run, its tables and its page.

    Nothing is answered or scored, and no data is read. Records stay, and are used when a
    system or scorer is named again, until --prune removes them for good; alone, it removes
    those of what was forgotten before.
    """
    from plait import commands

    place = any_path(run).resolve()
    return commands.forget(place, system or (), scorer or (), _console(), prune=prune)


@app.command()
def export(
    run: Run,
    out: Annotated[Path, Option(help="Output folder, new or empty.")],
    system: Annotated[
        str | None,
        Option(
            help="Only this system; required unless the format is wandb, mlflow, "
            "trackio or eval-results."
        ),
    ] = None,
    format: Annotated[
        Literal[
            "mmie",
            "ueval",
            "parquet",
            "every-eval-ever",
            "wandb",
            "mlflow",
            "trackio",
            "eval-results",
        ],
        Option(
            help="An evaluator's format, a Parquet table, a shared format of "
            "results, or an experiment tracker."
        ),
    ] = "mmie",
    repeat: Annotated[
        int | None,
        Option(
            min=1,
            help="Only this repeat; by default all, or the first where a format holds one.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        Option(
            help="For eval-results: ID=SCORER, the benchmark's task and the "
            "scorer that is its metric."
        ),
    ] = None,
) -> int:
    """Write answers of a system, or results of all, for other programs."""
    from plait import commands

    return commands.export(any_path(run), system, format, out, repeat, _console(), task)


@app.command()
def show(
    run: Run,
    query: Annotated[str, Argument(help="A query's id.")],
    system: Annotated[str | None, Option(help="Only this system.")] = None,
) -> None:
    """Show prompts, replies, settings and seeds of one query."""
    from plait.benchmarks.runs.inspection import describe
    from plait.benchmarks.runs.opening import open_results

    root = any_path(run)
    console = _console()
    for line in describe(open_results(root, strict=False), query, system):
        console.print(line)


@app.command()
def verify(
    run: Run,
    repair: Annotated[
        bool,
        Option(
            "--repair",
            help="Set damaged parts aside, so that their records are made again.",
        ),
    ] = False,
) -> int:
    """Check every part and image of a run.

    Names what is damaged and how many records a repair would make again, and how many are
    missing that were there at the end of the run. Nothing is changed without --repair.
    Exit status 1 when damage is left or records are missing.
    """
    from plait.benchmarks.runs import integrity

    return integrity.verify_run(any_path(run).resolve(), _console(), repair=repair)


@app.command()
def cite(
    run: Run,
    out: Annotated[
        Path | None, Option(dir_okay=False, metavar="FILE", help="BibTeX file to write.")
    ] = None,
) -> None:
    """Print BibTeX of the models, data and metrics of a run.

    Below what each entry is cited for. Of what has no entry, such as your own class, the
    reason is told.
    """
    from plait import commands

    commands.cite(any_path(run), out, _console())


@app.command()
def ctl(
    run: Run,
    request: Annotated[
        list[str] | None,
        Argument(
            metavar="[REQUEST]",
            help="pause, resume, stop, budget AMOUNT, or workers STAGE NUMBER.",
        ),
    ] = None,
    wait: Annotated[
        float, Option(min=0, help="Seconds to wait for the job's answer.")
    ] = 10.0,
    shard: Annotated[
        str | None, Option(metavar="K/N", help="Only this shard; by default all.")
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Print the state of every driver as JSON.")
    ] = False,
) -> int:
    """Show or control a running job.

    From any machine that sees the run directory. `stop` ends the job as TERM does. A
    request applies until the job ends; the next job follows its config again.
    """
    from plait import control
    from plait.cluster.shard import Shard

    one = Shard.of(shard)
    words = request or ()
    console = _console()
    return control.control(any_path(run), words, wait, console, shard=one, as_json=as_json)


@app.command()
def leaderboard(
    runs: Annotated[list[str], Argument(metavar="RUN...", help="Run directories.")],
    out: Annotated[
        Path, Option(file_okay=False, help="Folder for the page and its data.")
    ] = Path("leaderboard"),
) -> None:
    """Put the systems of several runs and task sets on one page.

    With intervals, ranks and their uncertainty, and how far scorers agree on the order.
    """
    from plait.benchmarks.studies.leaderboard import write_leaderboard

    console = _console()
    overview = write_leaderboard([any_path(run) for run in runs], out)
    for table in overview.tables():
        console.print(table.rich)
    for warning in overview.warnings:
        console.print(f"Warning: {warning}.", style="yellow")
    console.print(f"page {out / 'index.html'}")


@app.command()
def paper(
    runs: Annotated[list[str], Argument(metavar="RUN...", help="Run directories.")],
    out: Annotated[
        Path | None,
        Option(file_okay=False, help="Output folder; by default RUN/paper, or paper."),
    ] = None,
    scorer: Scorers = None,
    system: Systems = None,
    interval: Annotated[
        Literal["brackets", "subscript", "pm", "none"],
        Option(help="How intervals stand beside means in LaTeX."),
    ] = "brackets",
    pair: Annotated[
        list[str] | None,
        Option(help="Two systems whose differences are drawn; by default the best two."),
    ] = None,
    correction: Corrected = True,
    rows: Annotated[
        Literal["query", "system", "repeat"], Option(help="Rows of the image sheet.")
    ] = "query",
    columns: Annotated[
        Literal["query", "system", "repeat"], Option(help="Its columns.")
    ] = "system",
    ids: Annotated[
        str | None, Option(help="Its queries: ids, separated by commas.")
    ] = None,
    best: Annotated[int, Option(min=0, help="So many with the best mean.")] = 0,
    worst: Annotated[int, Option(min=0, help="So many with the worst mean.")] = 0,
    random: Annotated[int, Option(min=0, help="So many, drawn at random.")] = 0,
    seed: Annotated[int, Option(help="Seed of --random.")] = 0,
) -> None:
    """Write tables, figures and an image sheet for a publication.

    LaTeX (booktabs, siunitx), Markdown and CSV; figures as PDF and SVG; the sheet as PNG,
    PDF, WebP and LaTeX. paper.md says how each number was made. Nothing is answered or
    scored.
    """
    from plait import commands
    from plait.benchmarks.studies.paper.columns import PaperChoice
    from plait.benchmarks.studies.paper.sheet import SheetChoice
    from plait.benchmarks.studies.paper.writing import PaperOptions

    choice = PaperChoice(
        systems=tuple(system or ()),
        scorers=tuple(scorer or ()),
        correction="holm" if correction else "none",
    )
    sheet = SheetChoice(
        rows=rows,
        columns=columns,
        systems=tuple(system or ()),
        ids=tuple(ids.split(",")) if ids else (),
        best=best,
        worst=worst,
        random=random,
        seed=seed,
        scorer=scorer[0] if scorer else None,
    )
    asked = SheetChoice(systems=sheet.systems, scorer=sheet.scorer)
    options = PaperOptions(
        choice=choice,
        interval=interval,
        pair=tuple(pair or ()),
        sheet=sheet,
        needs_sheet=sheet != asked,
    )
    commands.paper([any_path(run) for run in runs], out, options, _console())


@app.command()
def agreement(
    scores: Annotated[str, Argument(help="A run directory, or a file of scores.")],
    human: Annotated[
        Path | None,
        Argument(
            metavar="[HUMAN]",
            help="Human annotations (CSV or JSON), or known truth (truth:match). By "
            "default the human choices that come with the run's data "
            "(mmrb2:PLACE).",
        ),
    ] = None,
    scorer: Scorers = None,
    criterion: Annotated[
        str | None,
        Option(
            help="Compare on this criterion alone; people's rows may name theirs in a "
            "column criterion."
        ),
    ] = None,
    scale: Annotated[
        str | None,
        Option(help="Scale of the human scores; by default 0-6, or the criterion's."),
    ] = None,
    rescale: Annotated[
        bool, Option(help="Map the judges' scores to the human scale first.")
    ] = True,
    everything: Annotated[
        bool, Option("--all", help="Show every measure of every group, however small.")
    ] = False,
    out: JsonFile = None,
) -> None:
    """Measure how far scores agree with people's, or with known truth.

    Correlations, errors and kappa, with intervals by query; of people's choices between
    two answers, how often each judge prefers the same. Groups with too few answers for an
    interval are shown with --all; --out writes all of it.
    """
    from plait.benchmarks.studies import agreement as study
    from plait.commands import show_study

    settings = study.AgreementSettings(
        human_scale=scale or "", rescale=rescale, criterion=criterion or ""
    )
    content = study.agreement_report(any_path(scores), human, settings, scorer or ())
    tables = study.tables if everything else study.brief_tables
    show_study(content, tables(content), (), out, _console())


@app.command()
def correct(
    run: Run,
    annotations: Annotated[
        Path | None,
        Argument(
            metavar="[ANNOTATIONS]",
            help="People's scores or votes (CSV or JSON); by default "
            "RUN/annotate/annotations.csv, as `plait annotate --collect` writes it.",
        ),
    ] = None,
    scorer: Annotated[
        str | None,
        Option(
            help="The scorer of the run to correct, such as judge:gpt-6.1-sol; needed "
            "where it has several.",
            autocompletion=completion.scorers,
        ),
    ] = None,
    drawn: Annotated[
        Literal["random"] | None,
        Option(
            help="State that the rated answers were chosen at random. Those of `plait "
            "annotate` were, and say so."
        ),
    ] = None,
    strata: Annotated[
        Literal["category", "field"] | None,
        Option(
            metavar="COLUMN",
            help="category or field: the rated answers were chosen at random within each, "
            "at other shares in some.",
        ),
    ] = None,
    scale: Annotated[
        str | None, Option(help="Scale of the people's scores; by default 0-6.")
    ] = None,
    out: JsonFile = None,
) -> None:
    """Correct a judge's scores by people's ratings of some answers.

    The mean of each system and the differences between systems, with intervals, by a judge
    that has scored all answers and people who have rated a random sample of them
    (prediction-powered inference, PPI++). Of votes on pairs: win rates. And what the judge
    is worth in ratings, and how many more would tell two systems apart.
    """
    from plait.benchmarks.runs.opening import open_results
    from plait.benchmarks.studies import correct as study
    from plait.commands import show_study

    settings = study.CorrectSettings(
        scorer=scorer, drawn=drawn, strata=strata, scale=scale or ""
    )
    root = any_path(run)
    found = study.correct(open_results(root).board, root, annotations, settings)
    show_study(found.as_json, found.tables, found.remarks, out, _console())


@app.command()
def annotate(
    run: Run,
    answers: Annotated[
        list[Path] | None,
        Argument(
            metavar="[ANSWERS]...",
            help="With --collect: the raters' files; by default those that --serve wrote.",
        ),
    ] = None,
    collect: Annotated[
        bool, Option("--collect", help="Write the raters' answers to annotations.csv.")
    ] = False,
    serve: Annotated[
        int | None,
        Option(min=0, max=65535, metavar="PORT", help="Serve the page on 127.0.0.1."),
    ] = None,
    pairs: Annotated[
        bool,
        Option("--pairs", help="Show two answers to compare instead of one to rate."),
    ] = False,
    items: Annotated[int, Option(min=1, help="Number of items, drawn at random.")] = 50,
    repeated: Annotated[
        int | None,
        Option(
            min=0,
            help="How many of them each rater sees twice; by default 5, at most a third.",
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        Option(help="Annotations known to be correct, to check raters against."),
    ] = None,
    system: Systems = None,
    seed: Annotated[int, Option(help="Seed of the random draw.")] = 0,
    out: Annotated[
        Path | None,
        Option(file_okay=False, help="Output folder; by default RUN/annotate."),
    ] = None,
) -> int:
    """Have people rate a run's answers, or compare two, blind.

    Writes a page that opens from disk, with the rubrics' criteria and without the names of
    systems. Give raters the folder `page` and collect the files that they send back; with
    --serve, their answers are saved here. `plait agreement` and `plait correct` read what
    is collected.
    """
    from plait import commands
    from plait.benchmarks.studies.annotate import AnnotateOptions

    options = AnnotateOptions(
        pairs=pairs,
        items=items,
        repeated=repeated,
        systems=tuple(system or ()),
        gold=None if gold is None else str(gold),
        seed=seed,
    )
    place = any_path(run).resolve()
    files = answers or ()
    if not collect:
        return commands.annotate(place, out, options, serve, _console())
    return commands.collect(place, out, files, _console())


@app.command()
def compare(
    run: Run,
    protocol: Protocol,
    judge: Annotated[
        str, Option(help="Such as mmie-score, gpt-6.1-sol, hf:ORG/NAME or openai:MODEL.")
    ],
    baseline: Annotated[
        str | None,
        Option(
            help="Compare with this one (a system, gt or "
            "published:NAME); by default all pairs."
        ),
    ] = None,
    system: Systems = None,
    mode: Mode = None,
    rubric: Rubric = None,
    weights: WeightsKind = None,
    judgings: Annotated[
        int, Option(min=1, help="Judgements per pair, for a judge that samples.")
    ] = 1,
    address: Address = None,
    set_: Settings = None,
    out: OutFolder = None,
) -> int:
    """Judge pairs of a run's answers.

    By a published protocol, in both orders. No new answers are made, and pairs that have
    been judged are not judged again.
    """
    from plait.benchmarks.studies import compare as pairwise
    from plait.scorers.judging.sources import parse_mode, parse_rubric

    options = pairwise.CompareOptions(
        protocol=protocol,
        judge=judge,
        baseline=baseline,
        systems=tuple(system or ()),
        mode=parse_mode(mode),
        rubric=parse_rubric(rubric).absolute,
        weights=weights,
        judgings=judgings,
        address=address,
        settings=tuple(set_ or ()),
    )
    return pairwise.compare(any_path(run).resolve(), options, _console(), out)


@app.command()
def diff(
    first: Annotated[str, Argument(help="A run directory.")],
    second: Annotated[str, Argument(help="The run directory to compare with it.")],
    system: Annotated[str | None, Option(help="Only this system of the first run.")] = None,
    against: Annotated[
        str | None, Option(help="The system of the second run, if its name differs.")
    ] = None,
    answers: Annotated[
        int | None,
        Option(
            min=0,
            help="Compare texts and images for at most this many queries; scores for all.",
        ),
    ] = None,
    margin: Annotated[
        list[str] | None,
        Option(
            metavar="MEASURE=VALUE",
            help="How much worse the second run may be: a scorer of both (clipscore=0.5% "
            "or =0.02), images (lpips=0.02, dists, psnr=38, ssim), or equal texts "
            "(exact=0.98); may be repeated.",
        ),
    ] = None,
    out: JsonFile = None,
) -> int:
    """Show how the answers and scores of two runs differ.

    Paired by query. Of texts: how many are equal, and where they first differ. Of images:
    pixels, PSNR, SSIM, and LPIPS where its weights are. Of scores: the second run's minus
    the first's. With --margin, whether the second run is shown not to be worse than the
    first by more than that: exit status 1 where a margin is not shown.
    """
    from plait.benchmarks.studies.diff import remarks, run_difference
    from plait.benchmarks.studies.fidelity import gate_of_runs, parse_margins
    from plait.benchmarks.terminal import progress
    from plait.commands import show_study

    roots = (any_path(first), any_path(second))
    names = (system, against)
    margins = parse_margins(margin or ())
    console = _console()
    status = 0
    with progress(console, "comparing answers") as show:
        if margins:
            content, tables, gate = gate_of_runs(
                *roots, margins, *names, answers=answers, on_progress=show
            )
            status = 0 if gate.passed else 1
        else:
            content, tables = run_difference(
                *roots, *names, answers=answers, on_progress=show
            )
    show_study(content, tables, remarks(content), out, console)
    return status


@app.command()
def bias(run: Run, rubric: Rubric = None, out: OutFolder = None) -> int:
    """Show the bias of a run's judges.

    Position, length, own family, repeatability and wording.
    """
    from plait.benchmarks.studies import bias as biases
    from plait.scorers.judging.sources import parse_rubric

    root = any_path(run).resolve()
    source = parse_rubric(rubric)
    return biases.bias(root, _console(), rubric=source, out=out)


@app.command()
def uncertainty(
    run: Run,
    scorer: Annotated[str, Option(help="A judge of the run, such as judge:mmie-score.")],
    judges: Annotated[
        list[str] | None, Option(help="Another judge that is asked the same; repeatable.")
    ] = None,
    wordings: Annotated[
        int, Option(min=1, help="Wordings that each judge is asked in.")
    ] = 2,
    repeats: Annotated[
        int, Option(min=1, help="Times that one that samples is asked the same.")
    ] = 2,
    queries: Annotated[int, Option(min=2, help="Queries, drawn at random.")] = 40,
    system: Systems = None,
    difference: Annotated[
        float | None,
        Option(help="A difference to be made visible; by default that of the best two."),
    ] = None,
    seed: Annotated[int, Option(help="Seed of the draw of queries.")] = 0,
    weights: WeightsKind = None,
    address: Address = None,
    set_: Settings = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be asked; ask nothing.")
    ] = False,
) -> int:
    """Measure what a judge's own error adds to a run's numbers.

    Some answers are judged by several judges, in several wordings, several times. Shows
    where the variance of scores comes from, the interval that does not take the judge for
    the only one, and what to buy next for a difference to be seen. What is asked already
    is not asked again; tables and page show the interval from then on.
    """
    from plait.benchmarks.studies import uncertainty as study

    options = study.PilotOptions(
        scorer=scorer,
        judges=tuple(judges or ()),
        wordings=wordings,
        repeats=repeats,
        queries=queries,
        systems=tuple(system or ()),
        seed=seed,
        difference=difference,
        weights=weights,
        address=address,
        settings=tuple(set_ or ()),
        dry_run=dry_run,
    )
    return study.uncertainty(any_path(run).resolve(), options, _console())


@app.command("sensitivity")
@with_options(run_options, sensitivity_options)
def sensitivity_command(options: dict[str, Any]) -> int:
    """Show which settings of a text-to-image system move its figure.

    Varies guidance, steps, size and seed around the system's own settings, one at a time,
    on a few queries (16, without --limit), in one run that can be resumed. Differences are
    paired by query; also sensitivity.json and sensitivity.md in the run directory.
    """
    from plait import sensitivity

    return sensitivity.main(options, _console())


@app.command("list")
def list_names(
    what: Annotated[
        str, Argument(help="systems, scorers, data, weights or protocols.")
    ] = "systems",
) -> int:
    """List the names that can be used."""
    from plait import listing

    return listing.show(what, _console())


@app.command()
def fetch(
    names: Annotated[
        list[str],
        Argument(help="Names of systems, models or scorers, or a run's TOML file."),
    ],
) -> int:
    """Download weights into the Hub cache, for offline nodes."""
    from plait import listing

    return listing.fetch(names, _console())


@app.command()
def serve(
    name: Annotated[
        str | None,
        Argument(help="Such as anole, qwen2-vl-7b+sdxl-turbo@outline or sdxl-turbo."),
    ] = None,
    scorer: Scorers = None,
    config: Annotated[
        Path | None, Option(help="TOML file with settings of models.")
    ] = None,
    weights: WeightsKind = None,
    set_: Settings = None,
    host: Annotated[
        str, Option(help="Address to listen on; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 for a free one.")] = 8000,
    api_key_env: Annotated[
        str | None,
        Option(help="Environment variable that holds the key clients must send."),
    ] = None,
    queue: Annotated[
        int,
        Option(min=1, help="Most requests accepted at once; further ones get status 429."),
    ] = 128,
    timeout: Annotated[
        float,
        Option(min=0.1, help="Time limit of a request in seconds; then status 504."),
    ] = 600.0,
    batch_wait: Annotated[
        float, Option(min=0, help="Milliseconds a batch waits for more requests.")
    ] = 5.0,
    max_body: Annotated[
        int, Option(min=1, help="Largest request in MiB; larger ones get status 413.")
    ] = 64,
) -> int:
    """Serve a system or model over HTTP, in OpenAI's formats, and scorers at /score.

    Either may be left out. One process, on this machine. Ctrl-C stops it.
    """
    require_extra("serve", "plait serve")
    from plait.benchmarks.serving import gate, server

    limits = gate.ServingLimits(
        queue=queue,
        timeout_s=timeout,
        batch_wait_s=batch_wait / 1000,
        body_bytes=max_body * 2**20,
    )
    flags = {"weights": weights}
    model = server.resolve_model(name, config, flags, set_ or (), scorer or ())
    return server.serve(model, limits, _console(), (host, port), api_key_env)


_PASSED_ON: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "add_help_option": False,
}
"""Of commands that read their own options, as they do when run as modules."""


@bench.command("stage", **_PASSED_ON)
def bench_stage(context: typer.Context) -> int:
    """Measure one stage at several batch sizes, without Ray."""
    from plait.benchmarks.speed import command

    return command.main(context.args)


@bench.command("miniature", **_PASSED_ON)
def bench_miniature(context: typer.Context) -> int:
    """Test models, scorers and judges on a world whose truth is known.

    Whether the mini models reach their bars, with intervals.
    """
    from plait.benchmarks.miniature import bench as measured

    return measured.main(context.args, _console())


@bench.command("pairings")
@with_options(run_options, pairing_options)
def bench_pairings(options: dict[str, Any]) -> int:
    """Compare every LVLM with every text-to-image model.

    Runs the matrix as `plait run` does, into a run directory that can be resumed, and shows
    scores, main effects, interactions and costs per document. Without names: all mini
    models, on queries about a miniature world. With a run directory and no other option of
    a run, its tables are shown and written again, with --out into that folder.
    """
    from plait import pairings

    return pairings.main(options, _console())


def main() -> None:
    """Entry point: errors that the user can fix are printed without a traceback."""
    warnings.showwarning = _show_warning
    # Most objects of a command are frozen values without cycles, and there are millions of
    # them: looking for cycles as often as Python does takes a tenth of its time.
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
    # What is open is closed, as after Ctrl-C.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    ending = _Ending()
    if getattr(sys.modules["__main__"], "main", None) is main:  # not called by a program
        atexit.register(ending)  # the first one registered is the last one called
    try:
        app()
    except SystemExit as end:
        ending.status = end.code if isinstance(end.code, int) else int(bool(end.code))
        raise
    except Exception as error:
        status = _status_of(error)
        if status is None:
            print_error(error)
        else:
            for table in error.tables if isinstance(error, PlaitError) else ():
                _console().print(table.rich)
            print(f"plait: {visible(without_keys(str(error)))}", file=sys.stderr)
        ending.status = 1 if status is None else status
        sys.exit(ending.status)


_COLLECTED_AFTER = 200_000
"""Objects more than before, after which the youngest are searched for cycles."""


class _Ending:
    """Ends the process without Python's own end where threads are left behind.

    Before 3.14, Python ends a thread that comes back from C++, such as a batch that torch
    still computes, in a way that aborts the process.
    """

    status = 1

    def __call__(self) -> None:
        if any(thread.daemon for thread in threading.enumerate()):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self.status)
        # Python's own end would search everything for cycles once more.
        gc.freeze()


def _show_warning(
    message: Warning | str, category: type[Warning], *where: Any, **more: Any
) -> None:
    """Print what users should know as errors are; other warnings as Python does."""
    if issubclass(category, PlaitWarning):
        print(f"plait: {visible(without_keys(str(message)))}", file=sys.stderr)
    else:
        _show_others(message, category, *where, **more)


_show_others = warnings.showwarning


def _status_of(error: Exception) -> int | None:
    """Exit status of the program; None for a defect of plait."""
    if isinstance(error, PlaitError):
        return error.exit_status
    refused = isinstance(error, OSError) and error.errno in _REFUSALS
    return 1 if refused else None
