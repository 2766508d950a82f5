"""The base of strategies: strict fields, Rowlock's errors, and marks of fields without effect yet."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from .errors import EnforceNotMet, StrategyError, UnknownField, nearest, require_type


def effect(default: Any = ..., **settings: Any) -> Any:
    """Declare a field whose every value has its effect."""
    return Field(default, json_schema_extra={"built": "all"}, **settings)


def hint(default: Any = ..., **settings: Any) -> Any:
    """Declare a field that only concerns speed, memory or debugging, and has no effect yet."""
    return Field(default, json_schema_extra={"built": "none", "hint": True}, **settings)


def semantic(default: Any = ..., *, choices: tuple[Any, ...] = (), **settings: Any) -> Any:
    """Declare a field that changes results: only the default and the values in ``choices`` are carried out."""
    names = [getattr(value, "name", value) for value in choices]
    return Field(default, json_schema_extra={"built": names}, **settings)


class Edits:
    """A count of assignments to fields; strategies with different counts can be equal."""

    def __init__(self) -> None:
        self.count = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edits)

    __hash__ = None  # type: ignore[assignment]


class Strategy(BaseModel):
    """A set of switches. Fields are checked when they are assigned; an unknown name is refused.

    Raises:
        StrategyError: a field got a value it does not accept.
        UnknownField: there is no such field; the message names the nearest one.
        EnforceNotMet: a field that finalizing froze is assigned.
    """

    model_config = ConfigDict(
        strict=True, extra="forbid", validate_assignment=True, validate_default=False
    )

    frozen_by_finalize: ClassVar[frozenset[str]] = frozenset()
    _finalized: bool = False
    _edits: Edits = PrivateAttr(default_factory=Edits)

    def __init__(self, **fields: Any) -> None:
        for name in fields:
            self._check_name(name)
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise self._explain(error) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).__private_attributes__:
            super().__setattr__(name, value)
            return
        self._check_name(name)
        if self._finalized and name in self.frozen_by_finalize:
            raise EnforceNotMet(
                f"{type(self).__name__}.{name} cannot change: the strategy is finalized."
            )
        try:
            super().__setattr__(name, value)
        except ValidationError as error:
            raise self._explain(error) from None
        self._edits.count += 1

    @property
    def edits(self) -> Edits:
        """The count of assignments to fields: always the same object, quick to compare."""
        return self._edits

    def differing_fields(self, other: Strategy) -> list[str]:
        """Return the names of the fields that differ in another strategy of this kind."""
        return [name for name, _ in self._fields() if getattr(self, name) != getattr(other, name)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic's own, for private attributes
        raise self._unknown(name)

    @classmethod
    def _check_name(cls, name: str) -> None:
        if name not in cls.model_fields:
            raise cls._unknown(name)

    @classmethod
    def _unknown(cls, name: str) -> UnknownField:
        return UnknownField(
            f"{cls.__name__} has no field {name!r}.{nearest(name, cls.model_fields)}"
        )

    @classmethod
    def _explain(cls, error: ValidationError) -> StrategyError:
        parts = []
        for item in error.errors():
            field = ".".join(str(part) for part in item["loc"][:1]) or "?"
            why = item["msg"].removeprefix("Value error, ")  # pydantic's words for a check of ours
            if item["type"] == "is_instance_of":
                members = getattr(cls.model_fields[field].annotation, "__members__", ())
                why += f" ({', '.join(members)})" if members else ""
            parts.append(f"{cls.__name__}.{field}: {why}, got {item.get('input')!r}")
        return StrategyError("; ".join(parts) + ".")

    def changes(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults."""
        defaults = {
            name: field.get_default(call_default_factory=True) for name, field in self._fields()
        }
        return {
            name: getattr(self, name) for name in defaults if getattr(self, name) != defaults[name]
        }

    def to_json(self, *, changed_only: bool = False) -> str:
        """Return every field as JSON, or those that differ from their defaults; enumeration members by name."""
        if changed_only:
            return json.dumps({name: _to_plain(value) for name, value in self.changes().items()})
        return json.dumps(self._plain(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the strategy in JSON text as of :meth:`to_json`; fields it does not name have their defaults.

        Raises:
            StrategyError: the text is no JSON object, or a field gets a value it does not accept.
            UnknownField: a name that is no field.
        """
        try:
            return cls._from_plain(json.loads(text))
        except json.JSONDecodeError as error:
            raise StrategyError(f"{cls.__name__}.from_json: no JSON: {error}.") from None

    def to_yaml(self) -> str:
        """Return every field as YAML; members of an enumeration by name."""
        import yaml

        text: str = yaml.safe_dump(self._plain(), sort_keys=False)
        return text

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Return the strategy in YAML text as of :meth:`to_yaml`; fields it does not name have their defaults.

        Raises:
            StrategyError: the text is no YAML mapping, or a field gets a value it does not accept.
            UnknownField: a name that is no field.
        """
        import yaml

        try:
            return cls._from_plain(yaml.safe_load(text))
        except yaml.YAMLError as error:
            raise StrategyError(f"{cls.__name__}.from_yaml: no YAML: {error}.") from None

    def _plain(self) -> dict[str, Any]:
        return {name: _to_plain(getattr(self, name)) for name, _ in self._fields()}

    @classmethod
    def _from_plain(cls, fields: Any) -> Self:
        require_type(fields, dict, f"{cls.__name__}: expected fields by name", StrategyError)
        values = {}
        for name, value in fields.items():
            cls._check_name(name)
            default = cls.model_fields[name].get_default()
            if isinstance(default, Enum):
                members = type(default).__members__
                if value not in members:
                    raise StrategyError(
                        f"{cls.__name__}.{name}: expected one of {', '.join(members)}, got {value!r}."
                    )
                value = members[value]
            elif isinstance(default, set) and isinstance(value, list):
                value = set(value)
            values[name] = value
        return cls(**values)

    @classmethod
    def _fields(cls) -> list[tuple[str, Any]]:
        return list(cls.model_fields.items())

    def __str__(self) -> str:
        changes = ", ".join(f"{n}={_to_plain(value)!r}" for n, value in self.changes().items())
        return f"{type(self).__name__}({changes})"

    __repr__ = __str__

    def __dir__(self) -> list[str]:
        """Return the names to complete: fields and own methods, and none of Pydantic's public ones."""
        hidden = {name for name in dir(BaseModel) if not name.startswith("_")}
        return [name for name in super().__dir__() if name not in hidden]


def _to_plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    return sorted(value) if isinstance(value, set) else value


def flag(value: Any) -> Any:
    """Let 0, 1 and None stand for a bool, as Paddle's setters do; leave the rest to the strict check."""
    return bool(value) if value is None or (type(value) is int and value in (0, 1)) else value


def unbuilt(strategy: Strategy) -> tuple[list[str], list[str]]:
    """Return the changed fields that have no effect yet, and those that must be refused for it."""
    ignored: list[str] = []
    refusals: list[str] = []
    for name, value in strategy.changes().items():
        extra = type(strategy).model_fields[name].json_schema_extra
        assert isinstance(extra, dict), name
        choices = extra["built"]
        if choices == "all":
            continue
        if extra.get("hint"):
            ignored.append(name)
        elif getattr(value, "name", value) not in choices:  # type: ignore[operator]
            refusals.append(f"{name}={value!r}")
    return ignored, refusals
