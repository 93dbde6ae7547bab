"""Reads commands of vLLM with vLLM's own parser: JSON lists of arguments on standard input, one
JSON object of what was read for each.

With the word "keywords", the names of all arguments of its engine in place of that; with "methods",
those of speculative decoding; with "flags", every flag with its number of values and its choices.

Run by the Python of the engines' environment.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import get_args

from vllm.config.speculative import SpeculativeMethod
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

if sys.argv[1:] == ["keywords"]:
    found = [{field.name: str(field.type) for field in fields(AsyncEngineArgs)}]
elif sys.argv[1:] == ["methods"]:
    found = [[name for part in get_args(SpeculativeMethod) for name in (get_args(part) or (part,))]]
elif sys.argv[1:] == ["flags"]:
    actions = [
        one
        for one in make_arg_parser(FlexibleArgumentParser())._actions
        if "--help" not in one.option_strings
    ]
    found = [
        {
            word: (one.nargs, [str(choice) for choice in one.choices or ()])
            for one in actions
            for word in one.option_strings
        }
    ]
else:
    parser = make_arg_parser(FlexibleArgumentParser())
    found = [vars(parser.parse_args(argv)) for argv in json.load(sys.stdin)]
json.dump(found, sys.stdout, default=str)
