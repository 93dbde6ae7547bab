"""Protocol buffers in their text form."""

from __future__ import annotations

from tonnage.deploy.pbtxt import Said, Word, pbtxt


def test_a_message_has_scalars_words_blocks_lists_and_comments() -> None:
    message = {
        "name": 'a "b"\\\n',
        "": Said("two\nlines"),
        "max_batch_size": 8,
        "kind": Word("KIND_GPU"),
        "decoupled": True,
        "dims": [1, -1],
        "input": [{"name": "x", "data_type": Word("TYPE_INT32")}, {"name": "y"}],
        "dynamic_batching": {"policy": {"delay": 0.5}},
    }
    assert pbtxt(message) == (
        'name: "a \\"b\\"\\\\\\n"\n'
        "# two\n"
        "# lines\n"
        "max_batch_size: 8\n"
        "kind: KIND_GPU\n"
        "decoupled: true\n"
        "dims: [ 1, -1 ]\n"
        "input {\n"
        '  name: "x"\n'
        "  data_type: TYPE_INT32\n"
        "}\n"
        "input {\n"
        '  name: "y"\n'
        "}\n"
        "dynamic_batching {\n"
        "  policy {\n"
        "    delay: 0.5\n"
        "  }\n"
        "}\n"
    )
