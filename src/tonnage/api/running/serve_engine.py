"""``tonnage serve --engine auto|vllm|tensorrt-llm|sglang|triton|nim``: real engines as they are, on
the GPUs of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
    asked: EngineAsked, machine: Machine, *, installed: bool = False
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
    model, own_precision = _model(asked)
    families: tuple[str, ...] = ORDER if asked.engine == "auto" else (asked.engine,)
    if installed:
        families = _installed(asked, families)
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
            [asked.precision]
            if asked.precision
            else [name for name in PRECISIONS if name != "fp16" or own_precision == "fp16"]
        ),
        checkpoint=lambda engine, precision: _checkpoint(
            asked, model, own_precision, precision, engine
        ),
        context=asked.max_model_len,
    )
    return ordered([profile for profile in model_profiles if asked.tp in (None, profile.tp)])


def prepare_engine(
    asked: EngineAsked, machine: Machine, *, ports: launch.Ports | None = None, dry: bool = False
) -> launch.Start:
    """What is started on a machine, on free ``ports``; everything that cannot work is refused here.
    ``dry`` only shows it.

    Raises InputError: another GPU, format or driver, or no such engine here; DoesNotFit: the memory
    does not hold the model.
    """
    give = ports or free_ports
    if asked.engine == "triton":
        return _triton(asked, machine, give, dry=dry)
    if asked.plan is not None:
        return _planned(asked, machine, give, dry=dry)
    if asked.engine == "nim":
        return _nim(asked, machine, give, dry=dry)
    return (
        _by_profile(asked, machine, give, dry=dry)
        if machine.devices
        else _on_cpu(asked, machine, give, dry=dry)
    )


def _by_profile(
    asked: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
) -> launch.Start:
    """Start the engine by the named profile, or by the first one that fits."""
    profile = chosen(machine_profiles(asked, machine, installed=not dry), asked.profile)
    model, _ = _model(asked)
    set_knobs = {
        name: getattr(asked, name)
        for name in ("max_batch_size", "max_num_tokens")
        if getattr(asked, name)
    }
    started = _profile_command(
        profile, model, machine, profile.preset, profile.checkpoint, **set_knobs
    )
    groups = launch.placed(
        launch.usable(machine, asked.gpu_numbers), profile.tp, asked.instances or 1
    )
    reason = (
        f"{profile.name}, as was asked."
        if asked.profile
        else f"{profile.name}, by NIM's order: {RULE}."
    )
    return _start(
        asked,
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
    found: Profile, model: Model, machine: Machine, preset: str, checkpoint: str, **set_knobs: Any
) -> Command:
    """The command of a preset that serves a checkpoint as a profile says."""
    knobs = deployed(
        model, find_gpu(machine.gpu), find_engine(found.preset), found.precision, found.tp
    )
    return command(
        find_engine(preset).launch,
        checkpoint=checkpoint,
        parallelism=knobs.parallelism,
        knobs=replace(knobs.knobs, **set_knobs),
        max_context=found.context,
        kv_8bit=knobs.precision.kv == "fp8",
        kv_16bit=knobs.precision.kv == "fp16"
        and narrows_kv(knobs.precision, model, find_engine(found.preset), knobs.gpu),
    )


NAME_THE_IMAGE = "name the image of NIM as owner/name:tag, such as meta/llama-3.1-8b-instruct:1.8.4"


def _nim(asked: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool) -> launch.Start:
    """NIM's container on as many GPUs as the preferred profile of the model takes; the container
    chooses its own profile.
    """
    if asked.checkpoint is None:
        raise InputError(f"{option('checkpoint')}: {NAME_THE_IMAGE}")
    model, _ = _model(asked)
    check_image(asked.checkpoint, machine)
    # the driver is the image's business, and was judged by what it holds
    undriven = replace(machine, driver="")
    profile = chosen(
        machine_profiles(replace(asked, engine="auto", checkpoint=None), undriven), asked.profile
    )
    preset = find_engine("nim").name
    started = _profile_command(profile, model, machine, preset, asked.checkpoint)
    groups = launch.placed(
        launch.usable(machine, asked.gpu_numbers), profile.tp, asked.instances or 1
    )
    reason = f"NIM chooses its profile; {profile.name} says how many GPUs it gets."
    started = replace(started, argv=tuple(_image(word) for word in started.argv))
    return _start(
        asked,
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
    asked: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
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
        if getattr(asked, name) is not None:
            raise InputError(f"{option(name)}: a plan says it; leave one of the two out")
    choice = planned(asked.plan or "")
    pool = choice.plan.candidates[0].pool
    family = find_engine(pool.engine_preset or pool.engine.partition(" + ")[0]).family
    if asked.engine not in ("auto", family):
        raise InputError(
            f"{option('engine')}: the plan is for {family}; take {family} or auto, or size with"
            f" {option('engine')} {asked.engine}"
        )
    launch.check_planned(pool, machine, choice.deployment)
    if family == "nim" and asked.checkpoint is not None:
        check_image(asked.checkpoint, machine)
    if foreign := foreign_word(pool):
        raise InputError(
            f"{option('plan')}: its command holds {foreign!r:.100}, which Tonnage does not write;"
            " size again"
        )
    started, loads = _plan_command(asked, choice)
    groups = launch.placed(
        launch.usable(machine, asked.gpu_numbers),
        pool.parallelism.gpus,
        asked.instances,
        wanted=pool.instances,
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
        asked,
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


def _plan_command(asked: EngineAsked, choice: Planned) -> tuple[Command, str]:
    """The plan's command with the checkpoints filled in, and a note on a checkpoint that the caller
    did not choose.
    """
    pool = choice.plan.candidates[0].pool
    started = Command(argv=pool.launch, file=pool.launch_file)
    if not started.argv:
        raise InputError(f"{option('plan')}: no command is known that starts {pool.engine}")
    nim = started.argv[0] == "docker"
    if nim and asked.checkpoint is None:
        raise InputError(f"{option('checkpoint')}: {NAME_THE_IMAGE}")
    preset, vendor = pool.engine_preset or pool.engine, find_gpu(pool.gpu).vendor
    checkpoint_loading = loading(
        pool.model, pool.precision, preset, vendor=vendor, asked=asked.checkpoint
    )
    loaded = checkpoint_loading.checkpoint
    if loaded.startswith("/") and not checkpoint_loading.named and not Path(loaded).is_dir():
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
        if asked.drafter is None:
            raise InputError(
                f"{option('drafter')}: the plan decodes speculatively ({pool.engine}); name the"
                " drafter's checkpoint"
            )
        started = with_drafter(started, asked.drafter)
    return started, "" if checkpoint_loading.named else checkpoint_loading.told.replace("`", "")


def _on_cpu(
    asked: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
) -> launch.Start:
    """Start vLLM's build for CPUs, the only engine that runs without a GPU."""
    if asked.engine not in ("auto", "vllm"):
        notes = "".join(f"; {note}" for note in machine.notes)
        raise InputError(
            f"{option('engine')}: {asked.engine} needs a GPU, and a driver shows none on this"
            f" machine ({machine.label}){notes}"
        )
    for name in ("gpus", "tp", "profile", "precision"):
        if getattr(asked, name) is not None:
            raise InputError(
                f"{option(name)}: says nothing on a machine without a GPU; leave it out"
            )
    model, _ = _model(asked)
    checkpoint = (
        _checkpoint(asked, model, "", model.usual_precision, find_engine("vllm"))
        or asked.model
        or ""
    )
    count, cache = asked.instances or 1, asked.kv_cache_gb or launch.KV_CACHE_GB
    launch.check_memory(machine, checkpoint, kv_cache_gb=cache, instances=count)
    knobs = {name: value for name in launch.SETTINGS if (value := getattr(asked, name)) is not None}
    more = launch.cpu_environment(cache, asked.threads or 0)
    groups: tuple[tuple[Device, ...], ...] = ((),) * count
    return _start(
        asked,
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
    asked: EngineAsked, machine: Machine, ports: launch.Ports, *, dry: bool
) -> launch.Start:
    """A model repository as it is."""
    if asked.model is None:
        raise InputError(
            f"{option('model')}: is needed; give the folder of a model repository, which tonnage"
            " deploy writes for triton"
        )
    program = _program("triton", asked, dry=dry)
    count = asked.instances or 1
    groups = (
        launch.placed(launch.usable(machine, asked.gpu_numbers), asked.tp or 1, count)
        if machine.devices
        else ((),) * count
    )
    return launch.Start(
        engine="triton",
        model=Path(asked.model).name,
        why="A model repository says by itself how its models run.",
        instances=launch.triton_started(
            Path(asked.model),
            program=program,
            groups=groups,
            environment=asked.environment,
            ports=ports,
        ),
        startup_seconds=STARTUP_S,
        notes=("It speaks KServe's API below /v2; the gateway passes that on.",),
    )


def _start(
    asked: EngineAsked,
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
    name = asked.served_model_name or model
    if family == "tensorrt-llm":
        name = started.argv[1].rstrip("/").rsplit("/", 1)[-1]  # it knows no other
    start = launch.nim_started if family == "nim" else partial(launch.engine_started, family=family)
    environment = {**(more or {}), **asked.environment}
    instances = start(
        started,
        program=_program(family, asked, dry=dry),
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


def _program(family: str, asked: EngineAsked, *, dry: bool) -> str:
    """The path of the program that starts an engine; its bare name in a dry run on a machine that
    does not have it.
    """
    if dry:
        return launch.found_command(family, asked.engine_path) or launch.COMMANDS[family]
    return launch.needed_command(family, asked.engine_path)


# Seconds that an instance is given to serve: fetching a large checkpoint and compiling take long,
# and one that fails ends by itself
STARTUP_S = 1_800.0


def _installed(asked: EngineAsked, families: Sequence[str]) -> tuple[str, ...]:
    """The engines that are installed here. Raises InputError: none is."""
    installed_families = tuple(
        family for family in families if launch.found_command(family, asked.engine_path)
    )
    if not installed_families and len(families) == 1:
        launch.needed_command(families[0], asked.engine_path)
    if not installed_families:
        raise InputError(
            f"{option('engine')}: none of {', '.join(families)} is installed here; install one, or"
            f" give the folder of its environment as {option('engine_path')}"
        )
    return installed_families


def _model(asked: EngineAsked) -> tuple[Model, str]:
    """The model, and the number format of the checkpoint where that is on this machine; ""
    otherwise.
    """
    if asked.model is None:
        raise InputError(
            f"{option('model')}: is needed; give a name of the catalog, the folder of a checkpoint,"
            f" or {option('plan')}"
        )
    if Path(asked.model).is_dir():
        launch.check_folder(asked.model, where="model")
        model = find_model(str(Path(asked.model) / "config.json"))
        return replace(model, name=Path(asked.model).resolve().name), model.released or "fp16"
    return find_model(asked.model), ""


def _checkpoint(
    asked: EngineAsked, model: Model, own: str, precision: str, engine: EnginePreset
) -> str:
    """What an engine loads: of published checkpoints those in the requested format, or of no said
    format the author's own; "" for none.
    """

    def same(first: str, second: str) -> bool:
        return first == second or {first, second} <= {"fp16", "bf16"}

    if asked.checkpoint is not None and (
        asked.precision is None or same(asked.precision, precision)
    ):
        launch.check_folder(asked.checkpoint)
        return (
            asked.checkpoint
            if asked.precision or same(own or model.usual_precision, precision)
            else ""
        )
    if own:
        return str(asked.model) if same(own, precision) else ""
    if (
        asked.precision is None
        and asked.profile is None
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
    told: Callable[[str], None],
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
        told=told,
    )
