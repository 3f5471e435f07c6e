"""Conversions to bfloat, which are library calls on processors without AVX-512 BF16.

libgcc provides the functions since GCC 13. compiler-rt provides them too, but is often not installed.
"""

from __future__ import annotations

from collections.abc import Iterable

_DEFINITIONS = {
    "__truncsfbf2": """\
define linkonce_odr hidden bfloat @__truncsfbf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %sum = add i32 %bits, %half
  %near = lshr i32 %sum, 16
  %quiet = or i32 %high, 64
  %nan = fcmp uno float %x, %x
  %chosen = select i1 %nan, i32 %quiet, i32 %near
  %short = trunc i32 %chosen to i16
  %result = bitcast i16 %short to bfloat
  ret bfloat %result
}""",
    "__truncdfbf2": """\
define linkonce_odr hidden bfloat @__truncdfbf2(double %x) nounwind {
  %float = fptrunc double %x to float
  %bits = bitcast float %float to i32
  %back = fpext float %float to double
  %inexact = fcmp one double %back, %x
  %positive = fcmp ogt double %x, 0.0
  %more = fcmp ogt double %back, %x
  %less = fcmp olt double %back, %x
  %above = select i1 %positive, i1 %more, i1 %less
  %step = sext i1 %above to i32
  %cut = add i32 %bits, %step
  %sticky = or i32 %cut, 1
  %exact = select i1 %inexact, i32 %sticky, i32 %bits
  %single = bitcast i32 %exact to float
  %result = call bfloat @__truncsfbf2(float %single)
  ret bfloat %result
}""",
}


def bfloat_support(lines: Iterable[str]) -> dict[str, str]:
    """Return the definitions, by name, if the code contains bfloat; otherwise none."""
    return dict(_DEFINITIONS) if any("bfloat" in line for line in lines) else {}
