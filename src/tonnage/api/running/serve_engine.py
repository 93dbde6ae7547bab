"""``tonnage serve --engine auto|vllm|tensorrt-llm|sglang|triton|nim``: real engines as they are, on
the GPUs of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os.path import isdir
from pathlib import Path
from typing import Any

from tonnage.api.running.plans import Planned, planned
from tonnage.api.running.processes import serve_programs
from tonnage.deploy.checkpoint import loading
from tonnage.deploy.yaml_comments import yaml_text
from tonnage.errors import InputError, option
from tonnage.plan.launch import (
    FILE,
    Command,
    command,
    foreign_word,
    needs_drafter,
    with_drafter,
    with_metrics,
    without_checkpoint,
)
from tonnage.serve import launch
from tonnage.serve.machine import Device, Machine, detect, read_machine
from tonnage.serve.profiles import ENGINES as ORDER
from tonnage.serve.profiles import RULE, Profile, check_image, chosen, deployed, ordered, profiles
from tonnage.serve.supervisor import Program, free_ports
from tonnage.spec.catalog import find_engine, find_gpu, find_model
from tonnage.spec.catalog.checkpoints import narrows_kv, published
from tonnage.spec.engine import EnginePreset
from tonnage.spec.model import Model
from tonnage.spec.precision import PRECISIONS, find_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAsked:
    """What is to be served by a real engine: flags of ``tonnage serve`` by name; what None leaves
    open, plan and machine decide.
    """

    engine: str
    model: str | None = None
    plan: Path | None = None
    checkpoint: str | None = None
    drafter: str | None = None
    precision: str | None = None
    tp: int | None = None
    profile: str | None = None
    instances: int | None = None
    gpus: str | None = None
    max_model_len: int | None = None
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    kv_cache_gb: int | None = None
    threads: int | None = None
    served_model_name: str | None = None
    engine_path: Path | None = None
    engine_env: Sequence[str] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The further variables. Raises InputError: one has no name or no value."""
        pairs = [text.partition("=") for text in self.engine_env]
        bad = next(
            (
                text
                for text, (name, sign, _) in zip(self.engine_env, pairs, strict=True)
                if not name or not sign
            ),
            None,
        )
        if bad is not None:
            raise InputError(f"{option('engine_env')}: '{bad}' is no variable; write NAME=VALUE")
        return {name: value for name, _, value in pairs}

    @property
    def gpu_numbers(self) -> tuple[int, ...] | None:
        """The GPUs that were named. Raises InputError: one of them is no number."""
        if self.gpus is None:
            return None
        parts = [part.strip() for part in self.gpus.split(",")]
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise InputError(
                f"{option('gpus')}: '{self.gpus}' are no numbers of GPUs; write for example 0,1"
            )
        return tuple(dict.fromkeys(int(part) for part in parts))


def this_machine(described: Path | None = None) -> Machine:
    """This machine, or the one that a file describes."""
    return detect() if described is None else read_machine(described)


def machine_profiles(
    engine_question: EngineAsked, machine: Machine, *, installed: bool = False
) -> tuple[Profile, ...]:
    """Every profile of the model on the machine, the preferred first; of ``installed`` engines
    alone if so. Raises InputError.
    """
    if not machine.devices:
        notes = "".join(f"; {note}" for note in machine.notes)
        raise InputError(
            f"{option('engine')}: no driver shows a GPU on this machine ({machine.label}){notes};"
            f" give {option('machine')} a file that describes one, for {option('list_profiles')}"
            f" and {option('dry_run')} (docs/serve.md)"
        )
    if not machine.gpu:
        kinds = ", ".join(
            sorted(
                {device.gpu or f"{device.name} (not in the catalog)" for device in machine.devices}
            )
        )
        raise InputError(
            f"{option('gpus')}: profiles are of GPUs of one kind that the catalog has, and this"
            f" machine has {kinds}"
        )
    model, own_precision = _model(engine_question)
    families: tuple[str, ...] = (
        ORDER if engine_question.engine == "auto" else (engine_question.engine,)
    )
    if installed:
        families = _installed(engine_question, families)
    if unknown := next((family for family in families if family not in ORDER), None):
        raise InputError(
            f"{option('list_profiles')}: {unknown} has no profiles of ours; there are those of"
            f" {', '.join(ORDER)}"
        )
    model_profiles = profiles(
        model,
        machine,
        engines=families,
        precisions=(
            [engine_question.precision]
            if engine_question.precision
            else [name for name in PRECISIONS if name != "fp16" or own_precision == "fp16"]
        ),
        checkpoint=lambda engine, precision: _checkpoint(
            engine_question, model, own_precision, precision, engine
        ),
        context=engine_question.max_model_len,
    )
    return ordered(
        [profile for profile in model_profiles if engine_question.tp in (None, profile.tp)]
    )


def prepare_engine(
    engine_question: EngineAsked,
    machine: Machine,
    *,
    ports: launch.Ports | None = None,
    dry: bool = False,
) -> launch.Start:
    """What is started on a machine, on free ``ports``; everything that cannot work is refused here.
    ``dry`` only shows it.

    Raises InputError: another GPU, format or driver, or no such engine here; DoesNotFit: the memory
    does not hold the model.
    """
    give = ports or free_ports
    if engine_question.engine == "triton":
        return _triton(engine_question, machine, give, dry=dry)
    if engine_question.plan is not None:
        return _planned(engine_question, machine, give, dry=dry)
    if engine_question.engine == "nim":
        return _nim(engine_question, machine, give, dry=dry)
    return (
        _by_profile(engine_question, machine, give, dry=dry)
        if machine.devices
        else _on_cpu(engine_question, machine, give, dry=dry)
    )


def _by_profile(
    engine_question: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
) -> launch.Start:
    """Start the engine by the named profile, or by the first one that fits."""
    profile = chosen(
        machine_profiles(engine_question, machine, installed=not dry), engine_question.profile
    )
    model, _ = _model(engine_question)
    set_knobs = {
        name: getattr(engine_question, name)
        for name in ("max_batch_size", "max_num_tokens")
        if getattr(engine_question, name)
    }
    started = _profile_command(
        profile, model, machine, profile.preset, profile.checkpoint, **set_knobs
    )
    groups = launch.placed(
        launch.usable(machine, engine_question.gpu_numbers),
        profile.tp,
        engine_question.instances or 1,
    )
    reason = (
        f"{profile.name}, as was asked."
        if engine_question.profile
        else f"{profile.name}, by NIM's order: {RULE}."
    )
    return _start(
        engine_question,
        started,
        family=profile.family,
        preset=profile.preset,
        model=model.name,
        groups=groups,
        why=reason,
        ports=ports,
        dry=dry,
    )


def _profile_command(
    profile: Profile, model: Model, machine: Machine, preset: str, checkpoint: str, **set_knobs: Any
) -> Command:
    """The command of a preset that serves a checkpoint as a profile says."""
    knobs = deployed(
        model, find_gpu(machine.gpu), find_engine(profile.preset), profile.precision, profile.tp
    )
    return command(
        find_engine(preset).launch,
        checkpoint=checkpoint,
        parallelism=knobs.parallelism,
        knobs=replace(knobs.knobs, **set_knobs),
        max_context=profile.context,
        kv_8bit=knobs.precision.kv == "fp8",
        kv_16bit=knobs.precision.kv == "fp16"
        and narrows_kv(knobs.precision, model, find_engine(profile.preset), knobs.gpu),
    )


NAME_THE_IMAGE = "name the image of NIM as owner/name:tag, such as meta/llama-3.1-8b-instruct:1.8.4"


def _nim(
    engine_question: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
) -> launch.Start:
    """NIM's container on as many GPUs as the preferred profile of the model takes; the container
    chooses its own profile.
    """
    if engine_question.checkpoint is None:
        raise InputError(f"{option('checkpoint')}: {NAME_THE_IMAGE}")
    model, _ = _model(engine_question)
    check_image(engine_question.checkpoint, machine)
    # the driver is the image's business, and was judged by what it holds
    undriven = replace(machine, driver="")
    profile = chosen(
        machine_profiles(replace(engine_question, engine="auto", checkpoint=None), undriven),
        engine_question.profile,
    )
    preset = find_engine("nim").name
    started = _profile_command(profile, model, machine, preset, engine_question.checkpoint)
    groups = launch.placed(
        launch.usable(machine, engine_question.gpu_numbers),
        profile.tp,
        engine_question.instances or 1,
    )
    reason = f"NIM chooses its profile; {profile.name} says how many GPUs it gets."
    started = replace(started, argv=tuple(_image(word) for word in started.argv))
    return _start(
        engine_question,
        started,
        family="nim",
        preset=preset,
        model=model.name,
        groups=groups,
        why=reason,
        ports=ports,
        dry=dry,
    )


def _image(word: str) -> str:
    """An image that names its registry as it is, where the command put NVIDIA's before it."""
    inner = word.removeprefix("nvcr.io/nim/")
    return inner if inner != word and "." in inner.split("/")[0] else word


def _planned(
    engine_question: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
) -> launch.Start:
    """Start the engine by a plan's command, word for word."""
    for name in (
        "model",
        "precision",
        "tp",
        "profile",
        "max_model_len",
        "max_batch_size",
        "max_num_tokens",
    ):
        if getattr(engine_question, name) is not None:
            raise InputError(f"{option(name)}: a plan says it; leave one of the two out")
    choice = planned(engine_question.plan or "")
    pool = choice.plan.candidates[0].pool
    family = find_engine(pool.engine_preset or pool.engine.partition(" + ")[0]).family
    if engine_question.engine not in ("auto", family):
        raise InputError(
            f"{option('engine')}: the plan is for {family}; take {family} or auto, or size with"
            f" {option('engine')} {engine_question.engine}"
        )
    launch.check_planned(pool, machine, choice.deployment)
    if family == "nim" and engine_question.checkpoint is not None:
        check_image(engine_question.checkpoint, machine)
    if foreign := foreign_word(pool):
        raise InputError(
            f"{option('plan')}: its command holds {foreign!r:.100}, which Tonnage does not write;"
            " size again"
        )
    started, loads = _plan_command(engine_question, choice)
    groups = launch.placed(
        launch.usable(machine, engine_question.gpu_numbers),
        pool.parallelism.gpus,
        engine_question.instances,
        planned_instances=pool.instances,
    )
    verb = "is" if len(groups) == 1 else "are"
    here = (
        f"{len(groups)} of the plan's {pool.instances} instances {verb} on this machine."
        if len(groups) < pool.instances
        else ""
    )
    why = f"{pool.engine} in {pool.precision} with {pool.parallelism}, as the plan chose."
    preset = pool.engine_preset or pool.engine
    return _start(
        engine_question,
        started,
        family=family,
        preset=preset,
        model=pool.model,
        groups=groups,
        why=why,
        ports=ports,
        dry=dry,
        notes=(here, loads),
    )


def _plan_command(engine_question: EngineAsked, choice: Planned) -> tuple[Command, str]:
    """The plan's command with the checkpoints filled in, and a note on a checkpoint that the caller
    did not choose.
    """
    pool = choice.plan.candidates[0].pool
    started = Command(argv=pool.launch, file=pool.launch_file)
    if not started.argv:
        raise InputError(f"{option('plan')}: no command is known that starts {pool.engine}")
    nim = started.argv[0] == "docker"
    if nim and engine_question.checkpoint is None:
        raise InputError(f"{option('checkpoint')}: {NAME_THE_IMAGE}")
    preset, vendor = pool.engine_preset or pool.engine, find_gpu(pool.gpu).vendor
    checkpoint_loading = loading(
        pool.model,
        pool.precision,
        preset,
        vendor=vendor,
        named_checkpoint=engine_question.checkpoint,
    )
    loaded = checkpoint_loading.checkpoint
    if loaded.startswith("/") and not checkpoint_loading.named and not isdir(loaded):
        unknown = (
            f"no published {pool.precision} checkpoint of {pool.model} is known that {pool.engine}"
            " reads"
        )
        raise InputError(
            f"{option('checkpoint')}: {unknown}; give one as owner/name or as a folder"
        )
    if not nim:
        launch.check_folder(loaded)
    spec, weights = find_engine(preset), find_precision(pool.precision).weights
    bare = (
        started.argv
        if spec.launch is None
        else without_checkpoint(started.argv, spec.launch, pool.model, weights)
    )
    argv = tuple(
        loaded if word == pool.model else _image(word.replace(f"/{pool.model}", f"/{loaded}"))
        for word in bare
    )
    started = Command(argv=(*argv, *checkpoint_loading.words), file=started.file)
    if needs_drafter(started):
        if engine_question.drafter is None:
            raise InputError(
                f"{option('drafter')}: the plan decodes speculatively ({pool.engine}); name the"
                " drafter's checkpoint"
            )
        started = with_drafter(started, engine_question.drafter)
    return started, "" if checkpoint_loading.named else checkpoint_loading.told.replace("`", "")


def _on_cpu(
    engine_question: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
) -> launch.Start:
    """Start vLLM's build for CPUs, the only engine that runs without a GPU."""
    if engine_question.engine not in ("auto", "vllm"):
        notes = "".join(f"; {note}" for note in machine.notes)
        raise InputError(
            f"{option('engine')}: {engine_question.engine} needs a GPU, and a driver shows none on"
            f" this machine ({machine.label}){notes}"
        )
    for name in ("gpus", "tp", "profile", "precision"):
        if getattr(engine_question, name) is not None:
            raise InputError(
                f"{option(name)}: says nothing on a machine without a GPU; leave it out"
            )
    model, _ = _model(engine_question)
    checkpoint = (
        _checkpoint(engine_question, model, "", model.usual_precision, find_engine("vllm"))
        or engine_question.model
        or ""
    )
    count, cache = engine_question.instances or 1, engine_question.kv_cache_gb or launch.KV_CACHE_GB
    launch.check_memory(machine, checkpoint, kv_cache_gb=cache, instances=count)
    knobs = {
        name: value
        for name in launch.SETTINGS
        if (value := getattr(engine_question, name)) is not None
    }
    more = launch.cpu_environment(cache, engine_question.threads or 0)
    groups: tuple[tuple[Device, ...], ...] = ((),) * count
    return _start(
        engine_question,
        launch.cpu_command(checkpoint, knobs),
        family="vllm",
        preset="vllm on the CPU",
        model=model.name,
        groups=groups,
        why="vLLM on the CPU, because no driver shows a GPU here.",
        ports=ports,
        dry=dry,
        more=more,
        notes=machine.notes,
    )


def _triton(
    engine_question: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
) -> launch.Start:
    """A model repository as it is."""
    if engine_question.model is None:
        raise InputError(
            f"{option('model')}: is needed; give the folder of a model repository, which tonnage"
            " deploy writes for triton"
        )
    program = _program("triton", engine_question, dry=dry)
    count = engine_question.instances or 1
    groups = (
        launch.placed(
            launch.usable(machine, engine_question.gpu_numbers), engine_question.tp or 1, count
        )
        if machine.devices
        else ((),) * count
    )
    return launch.Start(
        engine="triton",
        model=Path(engine_question.model).name,
        why="A model repository says by itself how its models run.",
        instances=launch.triton_started(
            Path(engine_question.model),
            program=program,
            groups=groups,
            environment=engine_question.environment,
            ports=ports,
        ),
        startup_seconds=STARTUP_S,
        notes=("It speaks KServe's API below /v2; the gateway passes that on.",),
    )


def _start(
    engine_question: EngineAsked,
    started: Command,
    *,
    family: str,
    preset: str,
    model: str,
    groups: tuple[tuple[Device, ...], ...],
    why: str,
    ports: launch.Ports,
    dry: bool,
    more: dict[str, str] | None = None,
    notes: tuple[str, ...] = (),
) -> launch.Start:
    """The instances of a command."""
    name = engine_question.served_model_name or model
    if family == "tensorrt-llm":
        name = started.argv[1].rstrip("/").rsplit("/", 1)[-1]  # it knows no other
    start = launch.nim_started if family == "nim" else partial(launch.engine_started, family=family)
    environment = {**(more or {}), **engine_question.environment}
    instances = start(
        started,
        program=_program(family, engine_question, dry=dry),
        name=name,
        groups=groups,
        environment=environment,
        ports=ports,
    )
    return launch.Start(
        engine=preset,
        model=name,
        why=why,
        instances=instances,
        file=with_metrics(started.file),
        startup_seconds=STARTUP_S,
        notes=tuple(note for note in (*notes, launch.across(groups)) if note),
    )


def _program(family: str, engine_question: EngineAsked, *, dry: bool) -> str:
    """The path of the program that starts an engine; its bare name in a dry run on a machine that
    does not have it.
    """
    if dry:
        return launch.found_command(family, engine_question.engine_path) or launch.COMMANDS[family]
    return launch.needed_command(family, engine_question.engine_path)


# Seconds that an instance is given to serve: fetching a large checkpoint and compiling take long,
# and one that fails ends by itself
STARTUP_S = 1_800.0


def _installed(engine_question: EngineAsked, families: Sequence[str]) -> tuple[str, ...]:
    """The engines that are installed here. Raises InputError: none is."""
    installed_families = tuple(
        family for family in families if launch.found_command(family, engine_question.engine_path)
    )
    if not installed_families and len(families) == 1:
        launch.needed_command(families[0], engine_question.engine_path)
    if not installed_families:
        raise InputError(
            f"{option('engine')}: none of {', '.join(families)} is installed here; install one, or"
            f" give the folder of its environment as {option('engine_path')}"
        )
    return installed_families


def _model(engine_question: EngineAsked) -> tuple[Model, str]:
    """The model, and the number format of the checkpoint where that is on this machine; ""
    otherwise.
    """
    if engine_question.model is None:
        raise InputError(
            f"{option('model')}: is needed; give a name of the catalog, the folder of a checkpoint,"
            f" or {option('plan')}"
        )
    if isdir(engine_question.model):
        launch.check_folder(engine_question.model, where="model")
        model = find_model(str(Path(engine_question.model) / "config.json"))
        return replace(
            model, name=Path(engine_question.model).resolve().name
        ), model.released or "fp16"
    return find_model(engine_question.model), ""


def _checkpoint(
    engine_question: EngineAsked,
    model: Model,
    stored_format: str,
    precision: str,
    engine: EnginePreset,
) -> str:
    """What an engine loads: of published checkpoints those in the requested format, or of no said
    format the author's own; "" for none.
    """

    def same(first: str, second: str) -> bool:
        return first == second or {first, second} <= {"fp16", "bf16"}

    if engine_question.checkpoint is not None and (
        engine_question.precision is None or same(engine_question.precision, precision)
    ):
        launch.check_folder(engine_question.checkpoint)
        return (
            engine_question.checkpoint
            if engine_question.precision or same(stored_format or model.usual_precision, precision)
            else ""
        )
    if stored_format:
        return str(engine_question.model) if same(stored_format, precision) else ""
    if (
        engine_question.precision is None
        and engine_question.profile is None
        and not same(model.released.partition("+")[0], find_precision(precision).weight_format)
    ):
        return ""
    checkpoint = published(model.name, find_precision(precision), engine)
    return "" if checkpoint is None else checkpoint.repository


def serve_engine(
    start: launch.Start,
    *,
    router: str = "least-outstanding",
    host: str = "127.0.0.1",
    port: int = 8000,
    logs: Path | None = None,
    announce: Callable[[str], None],
) -> None:
    """Start the instances and the gateway before them, and serve until SIGINT or SIGTERM; arguments
    as of ``serve_apart``.

    Raises InputError, TonnageError: a process does not serve.
    """

    def programs(folder: Path) -> list[Program]:
        file = ""
        if start.file:
            path = folder / FILE
            path.write_text(yaml_text(start.file), encoding="utf-8")
            file = str(path)
        return [started.program(place, file) for place, started in enumerate(start.instances)]

    serve_programs(
        programs,
        router=router,
        host=host,
        port=port,
        logs=logs,
        ready_s=start.startup_seconds,
        announce=announce,
    )
