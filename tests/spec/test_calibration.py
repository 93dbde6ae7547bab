import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.spec.calibration import MULTIPLIERS, SCHEMA, read_calibration

GOOD: dict[str, Any] = {
    "schema": SCHEMA,
    "preset": "nim-2024",
    "gpu": "h100-sxm-80gb",
    "multipliers": {"step_s": 1.25, "compute": 0.9},
    "data": "10 points of my.csv",
    "date": "2026-11-21",
}


def written(tmp_path: Path, document: object) -> Path:
    file = tmp_path / "my.json"
    file.write_text(
        document if isinstance(document, str) else json.dumps(document), encoding="utf-8"
    )
    return file


def test_a_written_calibration_is_read_back_or_refused_by_name(tmp_path: Path) -> None:
    found = read_calibration(written(tmp_path, GOOD))
    assert (found.preset, found.gpu, found.data) == (
        "nim-2024",
        "h100-sxm-80gb",
        "10 points of my.csv, 2026-11-21",
    )
    assert dict(found.multipliers) == {"compute": 0.9, "step_s": 1.25}
    assert hash(found) == hash(read_calibration(written(tmp_path, GOOD)))
    for file in (
        tmp_path / "nowhere.json",
        written(tmp_path, "{"),
        written(tmp_path, '{"schema": NaN}'),
        written(tmp_path, "[]"),
    ):
        with pytest.raises(InputError, match="calibrate"):
            read_calibration(file)
    for change, word in [
        ({"schema": "tonnage.plan/1"}, "no calibration"),
        ({"gpu": 7}, "gpu"),
        ({"multipliers": {"warp": 1.0}}, "warp"),
        ({"multipliers": {"step_s": 0.0}}, "step_s"),
        ({"multipliers": {"step_s": 1e6}}, "from 0.05 to 20"),
    ]:
        with pytest.raises(InputError, match=word) as caught:
            read_calibration(written(tmp_path, {**GOOD, **change}))
        assert caught.value.path == ("coefficients",)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["schema", "preset", "gpu", "multipliers", "data", "date"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.floats()
            | st.text()
            | st.sampled_from([SCHEMA, "compute"]),
            lambda inner: st.dictionaries(
                st.text() | st.sampled_from(MULTIPLIERS), inner, max_size=3
            ),
            max_leaves=5,
        ),
    )
)
def test_any_document_is_read_or_refused_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]
) -> None:
    file = written(tmp_path_factory.mktemp("fuzz"), {**GOOD, **document})
    lines, factors = [], []
    try:
        factors = [factor for _, factor in read_calibration(file).multipliers]
    except InputError as error:
        lines = str(error).splitlines()
    assert all(line.startswith(("coefficients: ", "and ")) for line in lines)
    assert all(0 < factor <= 20 for factor in factors)
