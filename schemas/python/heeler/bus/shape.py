"""Run-time checks of decoded messages.

A shape checks a value in place: unknown enum strings become ``unknown``, null
values are removed (absent and null mean the same), unknown keys are left alone.
Everything else that does not fit raises `ShapeError` with the path to it.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any


class ShapeError(ValueError):
    """A value that the contract does not allow; says where and what."""


class Shape:
    """A check of one value.

    ``fast`` holds the exact types that need no look at the value itself: most of a
    message is such values, so they are recognised without a call each.
    """

    fast: frozenset[type] = frozenset()

    def check(self, value: Any, path: str) -> Any:
        """Return the value, maybe normalised, or raise ShapeError."""
        raise NotImplementedError


class Any_(Shape):  # noqa: N801
    """Anything."""

    def check(self, value: Any, path: str) -> Any:  # noqa: ARG002
        return value


class Str(Shape):
    """A string of at least `least` characters."""

    def __init__(self, least: int) -> None:
        self.least = least
        if least == 0:
            self.fast = frozenset((str,))

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not str or len(value) < self.least:
            raise ShapeError(f"{path}: {'empty' if value == '' else 'not a string'}")
        return value


class Enum(Shape):
    """One of some strings; an unknown one becomes ``unknown``."""

    def __init__(self, values: tuple[str, ...]) -> None:
        self.values = frozenset(values)

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not str:
            raise ShapeError(f"{path}: not a string")
        return value if value in self.values else "unknown"


class Int(Shape):
    """An integer, not a bool and not a float."""

    def __init__(self, least: int | None, const: int | None) -> None:
        self.least, self.const = least, const
        if least is None and const is None:
            self.fast = frozenset((int,))

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not int:
            raise ShapeError(f"{path}: not an integer")
        if self.const is not None and value != self.const:
            raise ShapeError(f"{path}: {value}, expected {self.const}")
        if self.least is not None and value < self.least:
            raise ShapeError(f"{path}: {value} is below {self.least}")
        return value


class Num(Shape):
    """A finite number."""

    def __init__(self, least: float | None, most: float | None) -> None:
        self.least, self.most = least, most

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not float and type(value) is not int:
            raise ShapeError(f"{path}: not a number")
        if not isfinite(value):
            raise ShapeError(f"{path}: {value} is not finite")
        if (self.least is not None and value < self.least) or (self.most is not None and value > self.most):
            raise ShapeError(f"{path}: {value} is out of range")
        return value


class Bool(Shape):
    """True or false."""

    fast = frozenset((bool,))

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not bool:
            raise ShapeError(f"{path}: not a boolean")
        return value


class Bytes(Shape):
    """Raw bytes."""

    fast = frozenset((bytes,))

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not bytes:
            raise ShapeError(f"{path}: not binary")
        return value


class Maybe(Shape):
    """A value or null."""

    def __init__(self, inner: Shape) -> None:
        self.inner = inner
        self.fast = inner.fast | {type(None)}

    def check(self, value: Any, path: str) -> Any:
        return None if value is None else self.inner.check(value, path)


class Either(Shape):
    """A value of one kind or another."""

    def __init__(self, *kinds: Shape) -> None:
        self.kinds = kinds

    def check(self, value: Any, path: str) -> Any:
        faults = []
        for kind in self.kinds:
            try:
                return kind.check(value, path)
            except ShapeError as err:
                faults.append(str(err))
        raise ShapeError(" and ".join(faults))


class List(Shape):
    """A list of one kind."""

    def __init__(self, inner: Shape) -> None:
        self.inner = inner

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not list:
            raise ShapeError(f"{path}: not a list")
        inner = self.inner
        if type(inner) is not Any_ and not inner.fast.issuperset(map(type, value)):
            for i, item in enumerate(value):
                value[i] = inner.check(item, path)
        return value


class Map(Shape):
    """A map from strings to one kind."""

    def __init__(self, inner: Shape) -> None:
        self.inner = inner

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise ShapeError(f"{path}: not a map")
        for key in value:
            if type(key) is not str:
                raise ShapeError(f"{path}: a key is not a string")
            value[key] = self.inner.check(value[key], f"{path}.{key}")
        return value


class Obj(Shape):
    """A map with known keys; unknown ones are left alone, null ones removed."""

    def __init__(self, fields: Mapping[str, Shape], required: list[str]) -> None:
        self.fields = fields
        self.required = frozenset(required)

    def check(self, value: Any, path: str) -> Any:
        if type(value) is not dict:
            raise ShapeError(f"{path or 'message'}: not a map")
        fields = self.fields
        nulls = []
        for key, item in value.items():
            if item is None:
                nulls.append(key)
                continue
            field = fields.get(key)
            if field is None:
                if type(key) is not str:
                    raise ShapeError(f"{path or 'message'}: a key is not a string")
            elif type(item) not in field.fast:
                value[key] = field.check(item, f"{path}.{key}" if path else key)
        for key in nulls:
            del value[key]
        if not self.required <= value.keys():
            missing = ", ".join(sorted(self.required - value.keys()))
            raise ShapeError(f"{path or 'message'}: missing {missing}")
        return value
