"""`-ffp-contract`: whether a product and a sum of device code may become one fused operation."""

from __future__ import annotations

from enum import StrEnum


class Contraction(StrEnum):
    """Where a product and a sum may be fused, named as by clang.

    `on`: where the program allows it, by the flag `contract` of both operations; `off`: nowhere;
    `fast`: everywhere.
    """

    OFF = "off"
    ON = "on"
    FAST = "fast"
