// Barriers, SIMD functions and atomics of a GPU whose SIMD groups have 32 lanes. The line of every
// call is that of its caller: threads that meet must be at one.
#pragma once

#include "strict_runtime.h"

#define SOFTWARE_LINE int line = __builtin_LINE()

namespace software {

// A value of every lane of the caller's SIMD group.
template <class T>
struct Lanes {
  T values[kSimdWidth];
  uint active, lane;
  const char* function;
  int line;

  Lanes(const char* name, const T& value, int at) : function(name), line(at) {
    static_assert(sizeof(T) <= kExchangeBytes, "lanes exchange less than that");
    active = strict_exchange(name, &value, sizeof(T), values, &lane, at);
  }
  bool is_active(uint i) const { return i < kSimdWidth && (active >> i & 1u) != 0; }
  T get(uint i) const {
    if (!is_active(i)) strict_fail(function, "takes the value of a lane that is not active", line);
    return values[i];
  }
  template <class Combine>
  T reduce(Combine combine, uint end = kSimdWidth) const {
    const uint first = __builtin_ctz(active);
    T result = values[first];
    for (uint i = first + 1; i < end; ++i) {
      if (is_active(i)) result = combine(result, values[i]);
    }
    return result;
  }
};

}  // namespace software

namespace metal {

inline void threadgroup_barrier(mem_flags flags, SOFTWARE_LINE) {
  software::strict_barrier(software::Scope::kThreadgroup, uint(flags), line);
}
inline void simdgroup_barrier(mem_flags flags, SOFTWARE_LINE) {
  software::strict_barrier(software::Scope::kSimdgroup, uint(flags), line);
}

#define SOFTWARE_REDUCE(name, expression)                                                          \
  template <class T>                                                                               \
  inline T simd_##name(T x, SOFTWARE_LINE) {                                                       \
    return software::Lanes<T>("simd_" #name, x, line).reduce([](T a, T b) { return expression; }); \
  }
SOFTWARE_REDUCE(sum, T(a + b))
SOFTWARE_REDUCE(product, T(a* b))
SOFTWARE_REDUCE(min, T(min(a, b)))
SOFTWARE_REDUCE(max, T(max(a, b)))
SOFTWARE_REDUCE(and, T(a& b))
SOFTWARE_REDUCE(or, T(a | b))
SOFTWARE_REDUCE(xor, T(a ^ b))
#undef SOFTWARE_REDUCE

#define SOFTWARE_PREFIX(name, op, neutral)                                   \
  template <class T>                                                         \
  inline T simd_prefix_inclusive_##name(T x, SOFTWARE_LINE) {                \
    const software::Lanes<T> lanes("simd_prefix_inclusive_" #name, x, line); \
    return lanes.reduce([](T a, T b) { return T(a op b); }, lanes.lane + 1); \
  }                                                                          \
  template <class T>                                                         \
  inline T simd_prefix_exclusive_##name(T x, SOFTWARE_LINE) {                \
    const software::Lanes<T> lanes("simd_prefix_exclusive_" #name, x, line); \
    if (lanes.lane == uint(__builtin_ctz(lanes.active))) return T(neutral);  \
    return lanes.reduce([](T a, T b) { return T(a op b); }, lanes.lane);     \
  }
SOFTWARE_PREFIX(sum, +, 0)
SOFTWARE_PREFIX(product, *, 1)
#undef SOFTWARE_PREFIX

template <class T>
inline T simd_broadcast(T x, ushort from, SOFTWARE_LINE) {
  return software::Lanes<T>("simd_broadcast", x, line).get(from);
}
template <class T>
inline T simd_broadcast_first(T x, SOFTWARE_LINE) {
  const software::Lanes<T> lanes("simd_broadcast_first", x, line);
  return lanes.get(__builtin_ctz(lanes.active));
}
template <class T>
inline T simd_shuffle(T x, ushort from, SOFTWARE_LINE) {
  return software::Lanes<T>("simd_shuffle", x, line).get(from);
}
template <class T>
inline T simd_shuffle_xor(T x, ushort mask, SOFTWARE_LINE) {
  const software::Lanes<T> lanes("simd_shuffle_xor", x, line);
  return lanes.get(lanes.lane ^ mask);
}
// These two do not wrap: lanes that would read past an end keep their values.
template <class T>
inline T simd_shuffle_up(T x, ushort delta, SOFTWARE_LINE) {
  const software::Lanes<T> lanes("simd_shuffle_up", x, line);
  return delta > lanes.lane ? x : lanes.get(lanes.lane - delta);
}
template <class T>
inline T simd_shuffle_down(T x, ushort delta, SOFTWARE_LINE) {
  const software::Lanes<T> lanes("simd_shuffle_down", x, line);
  return lanes.lane + delta >= software::kSimdWidth ? x : lanes.get(lanes.lane + delta);
}
template <class T>
inline T simd_shuffle_rotate_up(T x, ushort delta, SOFTWARE_LINE) {
  const software::Lanes<T> lanes("simd_shuffle_rotate_up", x, line);
  return lanes.get((lanes.lane - delta) % software::kSimdWidth);
}
template <class T>
inline T simd_shuffle_rotate_down(T x, ushort delta, SOFTWARE_LINE) {
  const software::Lanes<T> lanes("simd_shuffle_rotate_down", x, line);
  return lanes.get((lanes.lane + delta) % software::kSimdWidth);
}

// Which lanes voted yes.
class simd_vote {
 public:
  using vote_t = ulong;
  explicit simd_vote(vote_t votes = 0) : votes_(votes) {}
  explicit operator vote_t() const { return votes_; }
  bool any() const { return votes_ != 0; }

 private:
  vote_t votes_;
};
inline simd_vote simd_ballot(bool x, SOFTWARE_LINE) {
  const software::Lanes<bool> lanes("simd_ballot", x, line);
  ulong votes = 0;
  for (uint i = 0; i < software::kSimdWidth; ++i) votes |= ulong(lanes.is_active(i) && lanes.values[i]) << i;
  return simd_vote(votes);
}
inline bool simd_all(bool x, SOFTWARE_LINE) {
  return software::Lanes<bool>("simd_all", x, line).reduce([](bool a, bool b) { return a && b; });
}
inline bool simd_any(bool x, SOFTWARE_LINE) {
  return software::Lanes<bool>("simd_any", x, line).reduce([](bool a, bool b) { return a || b; });
}
inline bool simd_is_first(SOFTWARE_LINE) {
  const software::Lanes<bool> lanes("simd_is_first", true, line);
  return lanes.lane == uint(__builtin_ctz(lanes.active));
}

}  // namespace metal

namespace software {

// One thread runs at a time, so plain accesses do; these two are not taken for such.
template <class T>
SOFTWARE_HOOK static T atomic_get(const volatile metal::atomic<T>* a, Access access) {
  strict_access(a, sizeof(T), access);
  return a->value;
}
template <class T>
SOFTWARE_HOOK static void atomic_set(volatile metal::atomic<T>* a, T x, Access access) {
  strict_access(a, sizeof(T), access);
  a->value = x;
}

}  // namespace software

namespace metal {

template <class T>
inline T atomic_load_explicit(const volatile atomic<T>* a, memory_order) {
  return software::atomic_get(a, software::Access::kAtomicRead);
}
template <class T>
inline void atomic_store_explicit(volatile atomic<T>* a, software::same_t<T> x, memory_order) {
  software::atomic_set(a, x, software::Access::kAtomicWrite);
}
#define SOFTWARE_ATOMIC(name, result)                                                             \
  template <class T>                                                                              \
  inline T atomic_##name##_explicit(volatile atomic<T>* a, software::same_t<T> x, memory_order) { \
    const T old = software::atomic_get(a, software::Access::kAtomicUpdate);                       \
    software::atomic_set(a, T(result), software::Access::kAtomicUpdate);                          \
    return old;                                                                                   \
  }
SOFTWARE_ATOMIC(exchange, x)
SOFTWARE_ATOMIC(fetch_add, old + x)
SOFTWARE_ATOMIC(fetch_sub, old - x)
SOFTWARE_ATOMIC(fetch_min, min(old, x))
SOFTWARE_ATOMIC(fetch_max, max(old, x))
SOFTWARE_ATOMIC(fetch_and, old& x)
SOFTWARE_ATOMIC(fetch_or, old | x)
SOFTWARE_ATOMIC(fetch_xor, old ^ x)
#undef SOFTWARE_ATOMIC
template <class T>
inline bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* a, T* expected, software::same_t<T> x,
                                                  memory_order, memory_order) {
  const T old = software::atomic_get(a, software::Access::kAtomicUpdate);
  const bool same = __builtin_memcmp(&old, expected, sizeof(T)) == 0;
  if (same) software::atomic_set(a, x, software::Access::kAtomicUpdate);
  *expected = old;
  return same;
}

}  // namespace metal
