/* What the threads of a warp do together, and barriers. */
#include "number.h"
#include "select.h"

namespace ptx {

namespace {

uint32_t operand(const Thread &t, uint32_t at) { return (uint32_t)t.get(t.waits_at->list[at]); }

/* Each lane that is there; `lanes` has null for the others. */
template <class F> void each(Thread *const *lanes, F f) {
  for (uint32_t lane = 0; lane < 32; ++lane)
    if (lanes[lane])
      f(*lanes[lane], lane);
}

/* list: d, p, a, b, c, mask */
void shuffle(Thread *const *lanes, uint32_t) {
  uint64_t results[32];
  bool valid[32];
  each(lanes, [&](Thread &t, uint32_t lane) {
    uint32_t b = operand(t, 3) & 31, c = operand(t, 4), segment = c >> 8 & 31, limit = c & 31;
    uint32_t most = (lane & segment) | (limit & ~segment), least = lane & segment;
    int32_t from;
    bool is_valid;
    switch (t.waits_at->code) {
    case 0: from = (int32_t)lane - (int32_t)b, is_valid = from >= (int32_t)most; break;
    case 1: from = (int32_t)(lane + b), is_valid = from <= (int32_t)most; break;
    case 2: from = (int32_t)(lane ^ b), is_valid = from <= (int32_t)most; break;
    default: from = (int32_t)(least | (b & ~segment)), is_valid = from <= (int32_t)most; break;
    }
    if (!is_valid)
      from = (int32_t)lane;
    if (lanes[from])
      results[lane] = operand(*lanes[from], 2);
    else /* of a lane that is not there or not in the mask: not defined */
      results[lane] = (uint32_t)(0xbad00000u + settings().seed * 7919 + lane);
    valid[lane] = is_valid;
  });
  each(lanes, [&](Thread &t, uint32_t lane) {
    put(t, t.waits_at->list[0], results[lane]);
    put(t, t.waits_at->list[1], valid[lane]);
  });
}

/* list: d, predicate, mask; `code`: all, any, uni, ballot; flags 1: the predicate is negated */
void vote(Thread *const *lanes, uint32_t) {
  uint32_t yes = 0, present = 0;
  each(lanes, [&](Thread &t, uint32_t lane) {
    present |= 1u << lane;
    if ((operand(t, 1) & 1) != (t.waits_at->flags & 1))
      yes |= 1u << lane;
  });
  each(lanes, [&](Thread &t, uint32_t) {
    uint8_t code = t.waits_at->code;
    put(t, t.waits_at->list[0],
        code == 0 ? yes == present : code == 1 ? yes != 0 : code == 2 ? yes == present || !yes : yes);
  });
}

/* list: d, a, mask; all: d, p, a, mask */
void match(Thread *const *lanes, uint32_t) {
  uint32_t equal[32] = {}, present = 0;
  each(lanes, [&](Thread &t, uint32_t lane) {
    uint32_t at = t.waits_at->code ? 2 : 1;
    uint64_t mask = t.waits_at->type == Type::b64 ? ~0ull : 0xffffffff;
    present |= 1u << lane;
    each(lanes, [&](Thread &other, uint32_t number) {
      if (((t.get(t.waits_at->list[at]) ^ other.get(other.waits_at->list[at])) & mask) == 0)
        equal[lane] |= 1u << number;
    });
  });
  each(lanes, [&](Thread &t, uint32_t lane) {
    bool is_all = t.waits_at->code, agrees = equal[lane] == present;
    put(t, t.waits_at->list[0], is_all ? (agrees ? present : 0) : equal[lane]);
    if (is_all)
      put(t, t.waits_at->list[1], agrees);
  });
}

/* list: d, a, mask */
void reduce(Thread *const *lanes, uint32_t) {
  bool is_first = true;
  uint32_t result = 0;
  each(lanes, [&](Thread &t, uint32_t) {
    uint32_t value = operand(t, 1);
    const Inst &i = *t.waits_at;
    if (i.type == Type::f32) {
      float a = float_of(result), b = float_of(value);
      bool is_nan = a != a || b != b;
      float abs_b = i.flags & 2 ? fabsf(b) : b;
      float chosen = is_nan ? (i.flags & 4 ? NAN : a != a ? abs_b : a) : i.code == 1 ? fminf(a, abs_b) : fmaxf(a, abs_b);
      result = bits_of(is_first ? abs_b : chosen);
      if (result << 1 > 0xff000000u)
        result = 0x7fffffff;
    } else if (is_first) {
      result = value;
    } else {
      bool is_less = i.type == Type::s32 ? (int32_t)value < (int32_t)result : value < result;
      switch (i.code) {
      case 0: result += value; break;
      case 1: result = is_less ? value : result; break;
      case 2: result = is_less ? result : value; break;
      case 3: result &= value; break;
      case 4: result |= value; break;
      default: result ^= value; break;
      }
    }
    is_first = false;
  });
  each(lanes, [&](Thread &t, uint32_t) { write<int32_t>(t, t.waits_at->list[0], (int32_t)result); });
}

/* list: d, p, mask */
void elect(Thread *const *lanes, uint32_t) {
  uint32_t leader = 0;
  while (!lanes[leader])
    ++leader;
  each(lanes, [&](Thread &t, uint32_t lane) {
    put(t, t.waits_at->list[0], leader);
    put(t, t.waits_at->list[1], lane == leader);
  });
}

void synchronize(Thread *const *lanes, uint32_t) {
  Clocks all;
  bool is_used = false;
  each(lanes, [&](Thread &t, uint32_t) {
    is_used = t.block->launch->kernel->needs_clocks;
    if (is_used)
      release(t, all);
  });
  if (is_used)
    each(lanes, [&](Thread &t, uint32_t) { acquire(t, all); });
}

/* How many lanes are there together is left open: all that wait here, or a random part of them. */
void tell_active(Thread *const *lanes, uint32_t present) {
  each(lanes, [&](Thread &t, uint32_t) { put(t, t.waits_at->list[0], present); });
}

Step warp_step(Thread &t, const Inst &i) {
  bool is_active_mask = i.meet == tell_active;
  return wait_for_warp(t, i, is_active_mask ? 0 : (uint32_t)t.get(i.list[i.list_size - 1]));
}

/* Barriers: list: d of red, number, count, predicate of red. `code`: 0 sync, 1 arrive, 16 + a reduction. */
Step barrier_step(Thread &t, const Inst &i) {
  bool is_red = i.code >= 16;
  uint32_t at = is_red ? 1 : 0;
  uint32_t number = (uint32_t)t.get(i.list[at++]) & 15, count = 0;
  if (at + is_red < i.list_size)
    count = (uint32_t)t.get(i.list[at++]);
  if (is_red)
    t.barrier_value = (t.get(i.list[at]) & 1) != (i.flags & 1);
  if (count % 32)
    fault(t, i, "a barrier of %u threads", count);
  return wait_at_barrier(t, i, number, count, i.code != 1);
}

/* barrier.cluster: a thread that waits looks again until all have arrived. */
Step cluster_step(Thread &t, const Inst &i);

} // namespace

void complete_barrier(Block &block, Barrier &barrier) {
  uint32_t population = 0;
  for (Thread *t : barrier.waiting)
    population += t->barrier_value;
  for (Thread *t : barrier.waiting) {
    const Inst &i = *t->waits_at;
    if (i.code >= 16) {
      bool all = population == barrier.waiting.size();
      put(*t, i.list[0], i.code == 16 ? population : i.code == 17 ? all : population != 0);
    }
    t->state = State::ready;
  }
  (void)block;
}

Handler warp_handler(const RawInst &raw, Inst &i) {
  const std::string &name = raw.opcode;
  i.type = raw.modifiers.empty() ? Type::none : type_of(raw.modifiers.back());
  auto choose = [&](std::initializer_list<const char *> names) {
    uint8_t code = 0;
    for (const char *one : names) {
      if (raw.has(one))
        i.code = code;
      ++code;
    }
  };
  if (name == "shfl") {
    choose({"up", "down", "bfly", "idx"});
    return i.meet = shuffle, raw.has("sync") ? warp_step : nullptr;
  }
  if (name == "vote") {
    choose({"all", "any", "uni", "ballot"});
    return i.meet = vote, raw.has("sync") ? warp_step : nullptr;
  }
  if (name == "match") {
    choose({"any", "all"});
    return i.meet = match, warp_step;
  }
  if (name == "redux") {
    choose({"add", "min", "max", "and", "or", "xor"});
    i.flags = (raw.has("abs") ? 2 : 0) | (raw.has("NaN") ? 4 : 0);
    return i.meet = reduce, warp_step;
  }
  if (name == "elect")
    return i.meet = elect, warp_step;
  if (name == "activemask")
    return i.meet = tell_active, warp_step;
  if (name == "bar" && raw.has("warp"))
    return i.meet = synchronize, warp_step;
  if (name == "bar" || name == "barrier") {
    if (raw.has("cluster"))
      return i.code = raw.has("wait"), cluster_step;
    i.code = raw.has("arrive") ? 1 : raw.has("red") ? (raw.has("popc") ? 16 : raw.has("and") ? 17 : 18) : 0;
    return barrier_step;
  }
  return nullptr;
}

namespace {
Step cluster_step(Thread &t, const Inst &i) {
  Gang &gang = *t.block->gang;
  if (!i.code) {
    t.cluster_phase = gang.cluster_phase;
    ++gang.cluster_waiting;
    return kNext;
  }
  if (gang.cluster_phase > t.cluster_phase)
    return kNext;
  t.waits_at = &i;
  t.state = State::cluster;
  return kStop;
}
} // namespace

} // namespace ptx
