"""Recorded traffic: the formats of its files, its burstiness, and what is wrong with it, line by
line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import InputError, InputErrors
from tonnage.spec.recording import (
    in_folder,
    load_profile,
    load_regions,
    profile_hours,
    read_recording,
)

EXCERPT = Path(__file__).parents[2] / "examples" / "code-completion.csv"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16"
    " 18:17:04.0319601,3180,8\n"
)
MOONCAKE = (
    '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0]}\n'
    '\n{"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": []}\n'
)


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def test_the_formats_of_files(tmp_path: Path) -> None:
    found = read_recording(written(tmp_path / "t.csv", AZURE), "--trace")
    assert (found.due_ns, found.isl, found.osl) == ((0, 52_000_100), (4808, 3180), (10, 8))
    found = read_recording(written(tmp_path / "t.jsonl", MOONCAKE), "--trace")
    assert (found.due_ns, found.isl, found.osl) == ((0, 3_000_000_000), (6758, 7322), (500, 490))
    for text in [
        "timestamp\n5\n5.25\n7\n",
        "time,timestamp\nx,2024-01-01T00:00:05Z\nx,2024-01-01T00:00:05.25Z\nx,2024-01-01T00:00:07\n",
    ]:
        found = read_recording(written(tmp_path / "t.csv", text), "--trace")
        assert found.due_ns == (0, 250_000_000, 2_000_000_000)
        assert found.pairs() is None
    for text in ["1,2,3", "1\n2\n3\n", "hour,rps\n0,1\n1,2\n2,3\n", "share\n1\n2\n3"]:
        assert load_profile(written(tmp_path / "p.csv", text), "--profile") == (1, 2, 3)


def test_the_excerpt_is_as_bursty_as_its_whole_also_stretched_to_a_mean() -> None:
    found = read_recording(str(EXCERPT), "--trace")
    assert len(found) == 2000
    assert found.cv == pytest.approx(13.3, abs=0.1)
    assert found.peak_second == 41
    assert sum(found.counts(60)) == 2000
    faster = found.at_mean(26)
    assert faster.mean_rps == pytest.approx(26, rel=1e-6)
    assert faster.cv == pytest.approx(found.cv, rel=1e-6)
    assert (faster.source, faster.change) == (found.source, ", stretched to a mean of 26/s")


BAD = "timestamp,isl,osl\n0,100,10\n1,-5,10\n0.5,100,0\nlater,100,10\n2,1.5,x\n"


def test_a_repeated_recording_keeps_its_rate_and_its_shared_prefix(tmp_path: Path) -> None:
    """Block 0 begins all prompts; blocks 10 and 20 are conversations of two turns, which no later
    copy finds."""
    prompts = [[0, 10], [0, 20], [0, 10, 11], [0, 20, 21], [0, 30]]
    lines = [
        f'{{"timestamp": {1000 * at}, "input_length": {512 * len(ids)}, "output_length": 5,'
        f' "hash_ids": {ids}}}\n'
        for at, ids in enumerate(prompts)
    ]
    once = read_recording(written(tmp_path / "t.jsonl", "".join(lines)), "--trace")
    thrice = once.repeated(11)
    assert once.repeated(5) is once
    assert (len(thrice), thrice.mean_rps) == (15, pytest.approx(once.mean_rps))
    assert thrice.isl == once.isl * 3
    assert thrice.blocks[:5] == once.blocks
    assert all(ids[0] == 0 for ids in thrice.blocks)
    for copy in (1, 2):
        repeated = thrice.blocks[5 * copy : 5 * copy + 5]
        assert repeated[2][:2] == repeated[0], "the second turn goes on from the first"
        assert not {block for ids in repeated for block in ids[1:]} & {
            block for ids in thrice.blocks[: 5 * copy] for block in ids
        }


def test_the_first_line_of_a_file_that_is_no_table_is_not_repeated(tmp_path: Path) -> None:
    """An agent may name any file of the machine, and sees what a message holds."""
    for text in (
        "root:x:0:0:root:/root:/bin/bash\n",
        "-----BEGIN PRIVATE KEY-----\nabc\n",
        "password=hunter2\n",
    ):
        with pytest.raises(InputError) as refused:
            read_recording(written(tmp_path / "t.csv", text), "--trace")
        assert text.strip().splitlines()[0] not in str(refused.value)
        assert "its first line names no columns" in str(refused.value)


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", BAD)
    with pytest.raises(InputErrors) as caught:
        read_recording(path, "--trace")
    lines = [line.removeprefix(f"--trace: {path}:") for line in caught.value.messages]
    assert [line.split(":")[0] for line in lines] == ["3", "4", "4", "5", "6", "6"]
    assert "isl '-5' is negative" in lines[0]
    assert any("time goes back by 0.5 s" in line for line in lines)
    bad = (
        '{"timestamp": "x", "input_length": 3, "output_length": -1}\n{"timestamp": 1e999,'
        ' "input_length": 3, "output_length": 1}\n'
    )
    text = '{\n[1]\n{"timestamp": 0}\n' + bad
    with pytest.raises(InputErrors) as caught:
        read_recording(written(tmp_path / "t.jsonl", text), "--trace")
    assert [line.split(".jsonl:")[1][0] for line in caught.value.messages] == [
        "1",
        "2",
        "3",
        "4",
        "4",
        "5",
    ]
    with pytest.raises(InputErrors) as caught:
        load_profile(written(tmp_path / "p.csv", "1\n-2\nx\n"), "--profile")
    assert [line.split(".csv:")[1][0] for line in caught.value.messages] == ["2", "3"]
    with pytest.raises(InputError, match="is empty"):
        load_profile(written(tmp_path / "e.csv", "\n"), "--profile")
    for text, says in [
        ("", "is empty"),
        ("timestamp\n", "holds 0 requests"),
        ("timestamp\n5\n", "holds 1 request;"),
        ("timestamp\n5\n5\n", "same moment"),
        ("t\n1\n", "no column"),
    ]:
        with pytest.raises(InputError, match=says):
            read_recording(written(tmp_path / "t.csv", text), "--trace")


@settings(max_examples=200)
@given(
    text=st.text(alphabet='0123456789-.:TZ ,\n{}"timestamp_inputlengthou\x00', max_size=80),
    name=st.sampled_from(["a.csv", "a.jsonl"]),
)
def test_any_file_is_a_trace_or_input_errors(
    text: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = written(
        tmp_path_factory.getbasetemp() / name,
        text if name == "a.jsonl" else f"timestamp,isl,osl\n{text}",
    )
    messages: list[str] = []
    found = None
    try:
        found = read_recording(path, "--trace")
    except InputError as error:
        messages = str(error).splitlines()
    assert all(line.startswith(("--trace: ", "and ")) for line in messages)
    assert bool(messages) == (found is None)
    if found is None:
        return
    assert found.mean_rps > 0
    assert list(found.due_ns) == sorted(found.due_ns)


FIELD = Path(__file__).parents[3] / "shared" / "field"


@pytest.mark.parametrize(
    ("place", "seconds", "rps", "unit"),
    [
        ("measuring/090/tr_qwen_s.jsonl", 29.5, 2.0, "seconds"),
        ("measuring/093/tr_azure24.csv", 29.5, 2.0, ""),
        ("planning/f15-trace-in-seconds/trace.jsonl", 99.5, 2.0, "seconds"),
    ],
)
def test_traces_of_the_field(place: str, seconds: float, rps: float, unit: str) -> None:
    if not (FIELD / place).exists():
        pytest.skip("the cases from the field are not here")
    found = read_recording(str(FIELD / place), "--trace")
    assert (found.due_ns[-1] / 1e9, found.mean_rps) == (
        pytest.approx(seconds, abs=0.1),
        pytest.approx(rps, rel=0.01),
    )
    assert found.unit == unit


def lines_of(times: list[Any], **further: Any) -> str:
    return "".join(
        json.dumps({"timestamp": time, "input_length": 10, "output_length": 5, **further}) + "\n"
        for time in times
    )


STEPS = [0.513 * place for place in range(60)]
UNITS_OF_TIMES = {
    "seconds with fractions": (STEPS, {}, "seconds"),
    "whole milliseconds": ([round(1e3 * step) for step in STEPS], {}, "milliseconds"),
    "milliseconds with fractions": ([1e3 * step + 0.25 for step in STEPS], {}, "milliseconds"),
    "Bailian's, whole seconds": ([*range(0, 60, 2)] * 1, {"chat_id": 1, "turn": 1}, "seconds"),
    "unix seconds": ([1.7e9 + step for step in STEPS], {}, "seconds"),
    "unix milliseconds": ([1.7e12 + 1e3 * step for step in STEPS], {}, "milliseconds"),
    "unix microseconds": ([round(1.7e15 + 1e6 * step) for step in STEPS], {}, "microseconds"),
    "unix nanoseconds": (
        [1_700_000_000_000_000_000 + round(1e9 * step) for step in STEPS],
        {},
        "nanoseconds",
    ),
}


@pytest.mark.parametrize("name", UNITS_OF_TIMES)
def test_the_unit_of_times_follows_from_the_file(tmp_path: Path, name: str) -> None:
    times, further, unit = UNITS_OF_TIMES[name]
    found = read_recording(written(tmp_path / "t.jsonl", lines_of(times, **further)), "--trace")
    assert found.unit == unit
    assert found.mean_rps == pytest.approx(0.5 if further else 1 / 0.513, rel=1e-3)
    assert found.change == ("" if unit == "milliseconds" else f", times read as {unit}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        # whole seconds, or 2,000 requests in a second
        ("t.jsonl", lines_of([place // 2 for place in range(60)])),
        # one request in ten seconds, or a hundred in one
        ("t.jsonl", lines_of([10.5 * place for place in range(60)])),
        ("t.csv", "timestamp\n" + "".join(f"{500 * place}\n" for place in range(60))),
    ],
)
def test_a_unit_that_is_not_clear_is_asked_for(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(
        InputError, match=r"its times may be seconds .* or milliseconds .*trace_unit"
    ):
        read_recording(path, "--trace")
    spans = [read_recording(path, "--trace", unit).due_ns[-1] for unit in ("s", "ms")]
    assert spans[0] == 1000 * spans[1]


def test_azure_s_trace_of_2024_has_zones_and_fractions(tmp_path: Path) -> None:
    for moments in (
        ["2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01+00:00"],
        ["2024-05-10T02:00:00,00993+02:00", "2024-05-10T00:00:01Z"],
    ):
        text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
            f'"{moment}",10,5\n' for moment in moments
        )
        assert read_recording(written(tmp_path / "t.csv", text), "--trace").due_ns == (
            0,
            990_070_000,
        )
    dated = lines_of(["2024-05-10T00:00:00Z", "2024-05-10T00:00:00.5Z"])
    assert read_recording(written(tmp_path / "t.jsonl", dated), "--trace").due_ns == (
        0,
        500_000_000,
    )


@pytest.mark.parametrize(
    ("text", "seconds", "prompts"),
    [
        # usage as OpenAI's API names it, at an epoch in seconds
        (
            "timestamp,prompt_tokens,completion_tokens\n1764300000.5,5,2\n1764300002,3,4\n",
            1.5,
            (5, 3),
        ),
        # the name of the column says the unit
        ("ts_us,input_length,output_length\n0,5,2\n1500000,3,4\n", 1.5, (5, 3)),
        ("arrival_time (ms),isl,osl\n0,5,2\n1500,3,4\n", 1.5, (5, 3)),
        ("start_s,input_tokens,output_tokens\n0,5,2\n90,3,4\n", 90.0, (5, 3)),
        # Vidur's
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,5,2\n0.75,3,4\n", 0.5, (5, 3)),
        # a date and a time apart
        ("Date,Time,isl,osl\n2026-11-01,23:59:59,5,2\n2026-11-02,00:00:01,3,4\n", 2.0, (5, 3)),
    ],
)
def test_columns_are_read_by_their_usual_names(
    tmp_path: Path, text: str, seconds: float, prompts: tuple[int, ...]
) -> None:
    trace = read_recording(written(tmp_path / "t.csv", text), "--trace")
    assert trace.due_ns == (0, round(seconds * 1e9))
    assert (trace.isl, trace.osl) == (prompts, (2, 4))


def test_a_table_without_a_column_of_times_names_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no column timestamp; it has isl, osl"):
        read_recording(written(tmp_path / "t.csv", "isl,osl\n5,2\n3,4\n"), "--trace")


def test_regions_are_added_up_in_hours_of_utc(tmp_path: Path) -> None:
    day = written(tmp_path / "day.csv", ",".join(["0"] * 12 + ["9"] + ["0"] * 11))
    flat = written(tmp_path / "flat.csv", ",".join(["1"] * 24))
    text = f"eu:{day}@+1, us:{day}@-5,ap:{flat}"
    regions = load_regions(text, "--profile")
    assert {name: hours.index(max(hours)) for name, hours in regions.items()} == {
        "eu": 11,
        "us": 17,
        "ap": 0,
    }
    whole = profile_hours(text, "--profile")
    assert (whole[11], whole[17], sum(whole)) == (10, 10, 42)
    assert profile_hours([1.0, 2.0], "--profile") == [1.0, 2.0]
    assert load_regions(day, "--profile") == {}
    assert in_folder("a", "eu:x.csv@+1,us:y.csv") == "eu:a/x.csv@+1,us:a/y.csv"
    assert in_folder("a", "x.csv") == "a/x.csv"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("us", "'us' is not a further region"),
        ("eu:flat", "is not a further region"),
        ("us:flat@+30", "is not a further region"),
        ("us:week", "the regions have 24 and 168 values"),
        ("us:nowhere.csv", "is no file"),
    ],
)
def test_what_is_no_region_is_refused(second: str, said: str, tmp_path: Path) -> None:
    flat = written(tmp_path / "flat", ",".join(["1"] * 24))
    written(tmp_path / "week", ",".join(["1"] * 168))
    with pytest.raises(InputError, match=said):
        load_regions(f"eu:{flat},{second.replace(':', f':{tmp_path}/')}", "--profile")
