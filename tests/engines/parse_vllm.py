"""Reads commands of vLLM with vLLM's own parser: JSON lists of arguments on standard input, one JSON object of what was read for each.

Run by the Python of the engines' environment.
"""

from __future__ import annotations

import json
import sys

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
found = [vars(parser.parse_args(argv)) for argv in json.load(sys.stdin)]
json.dump(found, sys.stdout, default=str)
