// Barriers, SIMD functions and atomics. A threadgroup here is one thread and a SIMD group is one
// lane, so that barriers do nothing and a reduction of a SIMD group is its operand; atomics are
// shared by all threads.
#pragma once

namespace metal {

SOFTWARE_INLINE void threadgroup_barrier(mem_flags) {}
SOFTWARE_INLINE void simdgroup_barrier(mem_flags) {}

#define SOFTWARE_SIMD(name)     \
  template <class T>            \
  SOFTWARE_INLINE T name(T x) { \
    return x;                   \
  }
SOFTWARE_SIMD(simd_sum)
SOFTWARE_SIMD(simd_product)
SOFTWARE_SIMD(simd_min)
SOFTWARE_SIMD(simd_max)
SOFTWARE_SIMD(simd_and)
SOFTWARE_SIMD(simd_or)
SOFTWARE_SIMD(simd_xor)
SOFTWARE_SIMD(simd_prefix_inclusive_sum)
SOFTWARE_SIMD(simd_prefix_inclusive_product)
SOFTWARE_SIMD(simd_broadcast_first)
#undef SOFTWARE_SIMD
#define SOFTWARE_SIMD(name)             \
  template <class T>                    \
  SOFTWARE_INLINE T name(T x, ushort) { \
    return x;                           \
  }
SOFTWARE_SIMD(simd_broadcast)
SOFTWARE_SIMD(simd_shuffle)
SOFTWARE_SIMD(simd_shuffle_xor)
SOFTWARE_SIMD(simd_shuffle_up)
SOFTWARE_SIMD(simd_shuffle_down)
#undef SOFTWARE_SIMD
template <class T>
SOFTWARE_INLINE T simd_prefix_exclusive_sum(T) {
  return T(0);
}
template <class T>
SOFTWARE_INLINE T simd_prefix_exclusive_product(T) {
  return T(1);
}
SOFTWARE_INLINE bool simd_all(bool x) { return x; }
SOFTWARE_INLINE bool simd_any(bool x) { return x; }
SOFTWARE_INLINE bool simd_is_first() { return true; }

template <class T>
SOFTWARE_INLINE T atomic_load_explicit(const volatile atomic<T>* a, memory_order) {
  T value;
  __atomic_load(&a->value, &value, __ATOMIC_RELAXED);
  return value;
}
template <class T>
SOFTWARE_INLINE void atomic_store_explicit(volatile atomic<T>* a, software::same_t<T> x, memory_order) {
  __atomic_store(&a->value, &x, __ATOMIC_RELAXED);
}
template <class T>
SOFTWARE_INLINE T atomic_exchange_explicit(volatile atomic<T>* a, software::same_t<T> x, memory_order) {
  T old;
  __atomic_exchange(&a->value, &x, &old, __ATOMIC_RELAXED);
  return old;
}
template <class T>
SOFTWARE_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* a, T* expected, software::same_t<T> x,
                                                           memory_order, memory_order) {
  return __atomic_compare_exchange(&a->value, expected, &x, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
// Compare and exchange for all: floats have no other way, and integers need none here.
#define SOFTWARE_ATOMIC(name, result)                                                                                  \
  template <class T>                                                                                                   \
  SOFTWARE_INLINE T atomic_fetch_##name##_explicit(volatile atomic<T>* a, software::same_t<T> x, memory_order order) { \
    T old = atomic_load_explicit(a, order);                                                                            \
    while (!atomic_compare_exchange_weak_explicit(a, &old, T(result), order, order)) {                                 \
    }                                                                                                                  \
    return old;                                                                                                        \
  }
SOFTWARE_ATOMIC(add, old + x)
SOFTWARE_ATOMIC(sub, old - x)
SOFTWARE_ATOMIC(min, min(old, x))
SOFTWARE_ATOMIC(max, max(old, x))
SOFTWARE_ATOMIC(and, old& x)
SOFTWARE_ATOMIC(or, old | x)
SOFTWARE_ATOMIC(xor, old ^ x)
#undef SOFTWARE_ATOMIC

}  // namespace metal
