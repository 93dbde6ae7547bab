"""The script of a tool that writes a format."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tonnage import api
from tonnage.compress.recipes import FORMATS, LLM_COMPRESSOR, MODELOPT, TOOLS
from tonnage.compress.run import pins, version


def test_every_format_of_every_tool_has_a_script_that_python_reads_and_pins(model: Path) -> None:
    for name in FORMATS:
        for tool in FORMATS[name].methods:
            found = api.compress(
                model, output=model.parent / "made", format=name, tool=tool, dry_run=True
            )
            assert isinstance(found, str)
            compile(found, "recipe.py", "exec")
            assert str(model) in found
            assert "def compressed()" in found
    for tool in TOOLS:
        lines = pins(tool).splitlines()
        assert all(line.count("==") == 1 and "+" not in line for line in lines)
        assert version(tool)


@pytest.mark.parametrize(
    "name", ['m"""\nraise SystemExit(7)\n"""', "m\\", "m'''", "{model}", "m\nimport os"]
)
def test_a_folder_of_any_name_is_text_in_the_script(model: Path, name: str) -> None:
    plain, folder = model.parent / "plain", model.parent / name
    shutil.copytree(model, plain)
    shutil.copytree(model, folder)
    for form, tool in (("fp8", LLM_COMPRESSOR), ("w4a16-awq", LLM_COMPRESSOR), ("nvfp4", MODELOPT)):
        scripts = [
            str(
                api.compress(
                    source, output=model.parent / "made", format=form, tool=tool, dry_run=True
                )
            )
            for source in (plain, folder)
        ]
        expected, written = (ast.parse(script) for script in scripts)
        assert [type(node) for node in written.body] == [type(node) for node in expected.body]
        assert name in str(ast.get_docstring(written, clean=False))
