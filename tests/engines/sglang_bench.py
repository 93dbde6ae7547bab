"""Starts SGLang's load client alone: the package that holds it needs CUDA's libraries as soon as it
is imported.

``sglang`` and its packages become folders without their ``__init__``. Of what the client imports,
one module needs an engine, for the name of a host that stands for a missing one; the client itself
runs as it was released."""

import importlib.util
import sys
import types
from pathlib import Path

specification = importlib.util.find_spec("sglang")
assert specification is not None
assert specification.submodule_search_locations is not None
root = Path(specification.submodule_search_locations[0])
for name in ("sglang", "sglang.srt", "sglang.srt.utils", "sglang.srt.disaggregation"):
    package = types.ModuleType(name)
    package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = package
engine = types.ModuleType("sglang.srt.disaggregation.utils")
vars(engine)["FAKE_BOOTSTRAP_HOST"] = "2.2.2.2"
sys.modules[engine.__name__] = engine

importlib.import_module("sglang.benchmark.serving").cli_main()
