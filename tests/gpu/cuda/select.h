/* Which handler an instruction has: each file knows its own, and returns null for any other. */
#ifndef SELECT_H
#define SELECT_H

#include "ptx.h"

namespace ptx {

Handler arithmetic_handler(const RawInst &, Inst &);
Handler memory_handler(const RawInst &, Inst &);
Handler warp_handler(const RawInst &, Inst &);
Handler matrix_handler(const RawInst &, Inst &);
Handler async_handler(const RawInst &, Inst &);

uint32_t float8_bits(double value, bool is_e4m3);
double float8_value(uint32_t bits, bool is_e4m3);

} // namespace ptx
#endif
