"""A service file is read strictly: every fault is told at once, with its place."""

import pytest

from tonnage.errors import InputErrors
from tonnage.spec.service import Stage, read_service, service_of


def test_the_example_says_what_it_says():
    service = read_service("examples/services/image-search.yaml")
    assert service.streams[0].stages == (
        Stage(model="encoder", after=()),
        Stage(model="ranker", after=(0,)),
    )
    assert service.models["encoder"].time.of(5) == pytest.approx(2.28e-3)
    assert service.models["ranker"].time.of(10) == pytest.approx(1.4e-3)
    assert service.models["ranker"].batching.preferred_batch_size == (4, 8)


def test_every_fault_is_told_with_its_place():
    document = {
        "service": {
            "gpus": 2,
            "overlap": 2,
            "models": {
                "m": {
                    "time": {"0": "1ms"},
                    "instances": 0,
                    "gpus": [2],
                    "dynamic_batching": {"preferred_batch_size": [9]},
                }
            },
            "pipelines": {"p": ["m", "x"]},
        },
        "traffic": [
            {"to": "nobody"},
            {"to": "m", "items": 4},
            {"to": "m", "rate": -1, "priority": 1},
        ],
    }
    with pytest.raises(InputErrors) as caught:
        service_of(document, "service.yaml")
    said = str(caught.value)
    for place in (
        "service.overlap",
        "m.instances",
        "m.gpus",
        "m.time",
        "preferred_batch_size",
        "pipelines.p",
        "traffic[1].to",
        "items: 4",
    ):
        assert place in said
    assert "rate: -1" in said
    assert "priority: 1" in said
    document = {
        "service": {"models": {"m": {"time": {"1": "1ms"}, "max_batchsize": 3}}},
        "traffic": [{"to": "m", "rate": 1}],
    }
    with pytest.raises(InputErrors, match="max_batch_size"):
        service_of(document, "service.yaml")


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ({"time": {"9" * 5_000: "1ms"}}, "service.models.m.time: write durations by batch size"),
        (
            {"time": {"1": "1ms"}, "inputs": {"x": f"FP32[{'9' * 5_000}]"}},
            "service.models.m.inputs",
        ),
    ],
)
def test_a_size_of_5_000_digits_is_refused_in_a_line(model: dict[str, object], fault: str) -> None:
    service = {"gpus": 1, "models": {"m": model}, "pipelines": {}}
    with pytest.raises(InputErrors, match=fault):
        service_of({"service": service, "traffic": [{"to": "m", "rate": 1}]}, "service.yaml")


@pytest.mark.parametrize("kind", ["models", "pipelines"])
@pytest.mark.parametrize(
    "name",
    ["../../../victim", "$(touch canary)", "a b", "", "a/b", "-rf", ".hidden", "a\nb", "聊天"],
)
def test_a_name_that_would_leave_its_folder_or_run_in_a_shell_is_refused(
    kind: str, name: str
) -> None:
    models = {
        "m": {"time": {"1": "1ms"}},
        **({name: {"time": {"1": "1ms"}}} if kind == "models" else {}),
    }
    service = {
        "gpus": 1,
        "models": models,
        "pipelines": {name: ["m"]} if kind == "pipelines" else {},
    }
    with pytest.raises(InputErrors) as refused:
        service_of({"service": service, "traffic": [{"to": "m", "rate": 1}]}, "service.yaml")
    assert any(
        f"service.{kind}: " in line and "is no name; write letters" in line
        for line in refused.value.lines
    )
