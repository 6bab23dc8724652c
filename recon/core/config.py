"""YAML <-> dataclasses, with errors that name the key, the line and the nearest right name.

Only plain values come from a file: no class names, no tags, no anchors.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast

import yaml

from recon.core.disk import read_bytes
from recon.core.errors import ReconError, UsageError, did_you_mean

T = TypeVar("T")
MAX_YAML_BYTES = 2**20
MAX_DEPTH = 32


class LocatedDict(dict[str, Any]):
    """A mapping read from a file that remembers where each key stands ("file:line")."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, str] = {}


class _Loader(yaml.SafeLoader):
    """SafeLoader without aliases, repeated keys or deep nesting; `1e-3` is a number."""

    depth = 0
    number_keys = False

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node; MarkedYAMLError for an alias or one too deep."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases are not supported", problem_mark=self.peek_event().start_mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_located(self, node: yaml.MappingNode) -> typing.Iterator[LocatedDict]:
        """A mapping, made in two steps as PyYAML wants; MarkedYAMLError for keys that are not text or come twice."""
        result = LocatedDict()
        yield result
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if self.number_keys and isinstance(key, int):
                key = str(key_node.value)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem=f"key {key!r} is not text", problem_mark=key_node.start_mark)
            if key in result:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} appears twice", problem_mark=key_node.start_mark)
            result[key] = self.construct_object(value_node, deep=True)
            result.places[key] = f"{key_node.start_mark.name}:{key_node.start_mark.line + 1}"


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.construct_located)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*[eE][-+]?\d+|\.\d+([eE][-+]?\d+)?)$"), list("-+.0123456789")
)


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping of plain values (an empty file is an empty mapping).

    Raises:
        InputError: The file is missing or larger than 1 MiB.
        UsageError: It is not such YAML; names file and line.
    """
    return parse_yaml(read_bytes(path, MAX_YAML_BYTES), str(path))


def parse_yaml(data: bytes, where: str, number_keys: bool = False) -> dict[str, Any]:
    """A YAML mapping of plain values from `data`; `where` names it in messages.

    Whole numbers are refused as keys, or with `number_keys` taken as the text they are written as.

    Raises:
        UsageError: It is not such YAML; names file and line.
    """
    try:
        loader = _Loader(data.decode("utf-8"))
        loader.name = where
        loader.number_keys = number_keys
        result = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}" if mark is not None else where
        raise UsageError(f"cannot read {place}", why=str(error.problem)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {where}", why=str(error)) from error
    if result is None:
        return LocatedDict()
    if not isinstance(result, dict):
        raise UsageError(f"cannot read {where}", why="a table of `key: value` lines is needed at the top")
    return cast("dict[str, Any]", result)


def dump_yaml(obj: Any) -> str:
    """Return the YAML text of a dataclass or plain values, keys in their own order."""
    return str(yaml.safe_dump(to_dict(obj), sort_keys=False, allow_unicode=True))


def from_dict(cls: type[T], data: dict[str, Any], where: str = "") -> T:
    """Build dataclass `cls` from plain values; missing keys take their defaults.

    Understands int, float, bool, str, Path, Enum, Any, Optional and Union, Literal,
    list, tuple, dict[str, ...] and nested dataclasses.

    Args:
        cls: A dataclass type.
        data: Its values by field name.
        where: Path of `data` in the whole configuration, such as "fit.lr", for messages.

    Raises:
        UsageError: Unknown key (with the nearest name), missing key or wrong type.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cast(Any, cls)) if f.init}
    if not isinstance(data, dict):
        raise UsageError(f"{where or cls.__name__} must be a table", why=f"got {_show(data)}")
    prefix = f"{where}." if where else ""
    places = getattr(data, "places", {})
    values: dict[str, Any] = {}
    for key, value in data.items():
        at = f" ({places[key]})" if key in places else ""
        if key not in fields:
            raise UsageError(f"unknown key '{prefix}{key}'{at}", fix=did_you_mean(str(key), fields))
        values[key] = _convert(hints[key], value, f"{prefix}{key}", at)
    for name, f in fields.items():
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise UsageError(f"missing key '{prefix}{name}'", fix=f"Give it a value of type {_name(hints[name])}.")
    try:
        return cls(**values)
    except ValueError as error:  # a refusal by __post_init__
        raise UsageError(f"bad values in {where or cls.__name__}", why=str(error)) from error


def to_dict(obj: Any) -> Any:
    """Return dataclasses as dicts, tuples as lists, paths and enums as text; inverse of `from_dict`."""
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return {f.name: to_dict(getattr(obj, f.name)) for f in dataclasses.fields(obj) if f.init}
    if isinstance(obj, dict):
        return {str(key): to_dict(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [to_dict(value) for value in obj]
    if isinstance(obj, enum.Enum):
        return obj.value
    if isinstance(obj, Path):
        return str(obj)
    return obj


def _convert(hint: Any, value: Any, where: str, at: str) -> Any:
    """Return `value` as type `hint` or raise a UsageError naming `where`."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(args, hint, value, where, at)
    if origin is Literal:
        if any(value == choice and type(value) is type(choice) for choice in args):
            return value
        raise UsageError(f"'{where}' cannot be {_show(value)}{at}", fix=did_you_mean(str(value), map(str, args)))
    if origin in (list, tuple, dict) or hint in (list, tuple, dict):
        return _convert_container(origin or hint, args, value, where, at)
    if dataclasses.is_dataclass(hint):
        return from_dict(cast("type[Any]", hint), value, where)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        choices = {str(member.value): member for member in hint}
        if str(value) in choices:
            return choices[str(value)]
        raise UsageError(f"'{where}' cannot be {_show(value)}{at}", fix=did_you_mean(str(value), choices))
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is type(None):
        if value is None:
            return None
    elif isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise UsageError(f"'{where}' must be {_name(hint)}{at}", why=f"got {_show(value)}")


def _convert_union(args: tuple[Any, ...], hint: Any, value: Any, where: str, at: str) -> Any:
    errors = []
    for arg in args:
        try:
            return _convert(arg, value, where, at)
        except ReconError as error:
            errors.append(error)
    # With one real alternative (Optional[X]) its own message says more.
    real = [error for arg, error in zip(args, errors, strict=True) if arg is not type(None)]
    if len(real) == 1:
        raise real[0]
    raise UsageError(f"'{where}' must be {_name(hint)}{at}", why=f"got {_show(value)}")


def _convert_container(kind: Any, args: tuple[Any, ...], value: Any, where: str, at: str) -> Any:
    if kind is dict:
        if not isinstance(value, dict):
            raise UsageError(f"'{where}' must be a table{at}", why=f"got {_show(value)}")
        item = args[1] if args else Any
        return {str(key): _convert(item, entry, f"{where}.{key}", at) for key, entry in value.items()}
    if not isinstance(value, (list, tuple)):
        raise UsageError(f"'{where}' must be a list{at}", why=f"got {_show(value)}")
    hints = list(args[:1] if kind is list or args[1:] == (...,) else args) or [Any]
    if kind is tuple and args and args[1:] != (...,):
        if len(value) != len(hints):
            raise UsageError(f"'{where}' must have {len(hints)} entries{at}", why=f"got {len(value)}")
    else:
        hints = hints * len(value)
    return kind(_convert(h, entry, f"{where}[{i}]", at) for i, (h, entry) in enumerate(zip(hints, value, strict=True)))


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _show(value: Any) -> str:
    text = repr(value)
    return f"{text[:60]}{'...' if len(text) > 60 else ''} ({type(value).__name__})"
