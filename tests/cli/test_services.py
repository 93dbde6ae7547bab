"""`simulate` and `size` of a file with a service."""

import json

from tonnage.cli.main import run

FILE = "examples/services/image-search.yaml"


def test_size_prints_servers_and_the_evidence(capsys):
    assert run(["size", FILE, "--json", "--requests", "4000"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["servers"] == answer["gpus"] == 3
    assert any("does not hold" in one for one in answer["one_fewer"])


def test_simulate_prints_streams_and_models(capsys):
    assert run(["simulate", FILE, "--requests", "500"]) == 0
    printed = capsys.readouterr().out
    assert "encoder" in printed
    assert "GPU busy" in printed


def test_a_setting_of_an_llm_is_refused(capsys):
    assert run(["simulate", FILE, "--tp", "2"]) == 2
    assert "--tp: a service of models that are not LLMs" in capsys.readouterr().err
