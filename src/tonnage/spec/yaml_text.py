"""YAML as plain values: no objects, and a key that is given twice is refused rather than overwritten."""

from __future__ import annotations

from functools import cache
from typing import Any

from tonnage.errors import InputError


def parse_yaml(text: str, where: str, *, shipped: bool = False) -> Any:
    """The plain values of a YAML text.

    Args:
        text: the YAML.
        where: the file, for messages.
        shipped: whether Tonnage ships the file, so that the faster parser, written in C, may read it: that one has no
            bound on how deeply a hostile file nests.

    Raises:
        InputError: the text is not YAML, gives a key twice or nests too deeply; the message names the line.
    """
    import yaml

    try:
        return yaml.load(text, Loader=_loader(shipped))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        raise InputError(f"{where}{at}: is not YAML: {getattr(error, 'problem', None) or 'it cannot be read'}") from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{where}: is not YAML that can be read: {str(error) or 'nested too deeply'}") from None


@cache
def _loader(fast: bool) -> Any:
    """A safe loader that refuses a key given twice."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader) if fast else yaml.SafeLoader

    class Unique(base):  # type: ignore[misc]
        """YAML without objects and without silent repeats."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = [key for place, key in enumerate(keys) if key in keys[:place]]
            if twice:
                raise yaml.constructor.ConstructorError(None, None, f"'{twice[0]}' is given twice", node.start_mark)
            found: dict[Any, Any] = super().construct_mapping(node, deep)
            return found

    def number(loader: Any, node: Any) -> Any:
        """Whole numbers; "1:2" is a text, as in YAML 1.2, and not 62, as in YAML 1.1."""
        return node.value if ":" in node.value else loader.construct_yaml_int(node)

    Unique.add_constructor("tag:yaml.org,2002:int", number)
    return Unique
