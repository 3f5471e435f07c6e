"""Parameters of a split kernel that several values share: no two that one entrance needs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

Value = TypeVar("Value", bound=Hashable)


class SharedParameters(Struct, Generic[Value], frozen=True):
    """The types of the parameters, and the number of the one for each value."""

    types: tuple[str, ...]
    number_of: Mapping[Value, int]

    def values(self, needed: Iterable[Value]) -> dict[int, Value]:
        """Return the value for each parameter that an entrance needs."""
        return {self.number_of[value]: value for value in needed if value in self.number_of}


def share_parameters(
    types: Mapping[Value, str], groups: Iterable[Iterable[Value]]
) -> SharedParameters[Value]:
    """Give values of equal type one parameter, unless they are in one of the groups together."""
    groups_of: dict[Value, list[set[int]]] = {value: [] for value in types}
    for group in groups:
        taken: set[int] = set()
        for value in group:
            if value in groups_of:
                groups_of[value].append(taken)
    found: list[str] = []
    by_type: dict[str, list[int]] = {}
    number_of: dict[Value, int] = {}
    for value, type_ in types.items():
        numbers = by_type.setdefault(type_, [])
        free = (n for n in numbers if not any(n in taken for taken in groups_of[value]))
        number = next(free, None)
        if number is None:
            number = len(found)
            found.append(type_)
            numbers.append(number)
        for taken in groups_of[value]:
            taken.add(number)
        number_of[value] = number
    return SharedParameters(tuple(found), number_of)
