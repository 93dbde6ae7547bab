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


def test_a_sweep_of_rates_is_a_curve(capsys):
    assert run(["simulate", FILE, "--requests", "400", "--request-rate", "500,1500", "--json"]) == 0
    sweep = json.loads(capsys.readouterr().out)
    assert sweep["loads"] == [500, 1500]
    means = [point["streams"][0]["latencies"]["mean"] for point in sweep["points"]]
    assert means == sorted(means)
    assert run(["simulate", FILE, "--requests", "400", "--request-rate", "500,1500"]) == 0
    assert "a search, mean, ms" in capsys.readouterr().out


def test_clients_take_the_place_of_one_kind_of_traffic(tmp_path, capsys):
    assert run(["simulate", FILE, "--concurrency", "1,2"]) == 2
    assert "--concurrency: the file has 2 kinds of traffic" in capsys.readouterr().err
    one = tmp_path / "one.yaml"
    one.write_text(
        "service: {models: {m: {time: {1: 10ms}}}}\ntraffic: [{to: m, rate: 1}]\n", encoding="utf-8"
    )
    assert run(["simulate", str(one), "--requests", "50", "--concurrency", "1,2", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [round(point["streams"][0]["latencies"]["mean"]) for point in points] == [10, 20]


def test_the_page_of_a_sized_service_holds_its_curve(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run(["size", FILE, "--requests", "500", "--report", str(page)]) == 0
    written = page.read_text(encoding="utf-8")
    assert "Latency against inferences per second" in written
    assert "Batches of encoder" in written
