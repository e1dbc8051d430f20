// Short functions out of line as well, for kernels that call very many: inlining them all would keep the host's
// compiler busy for seconds, and a call costs up to a quarter more than the function inlined.
#pragma once

#if defined(__clang__) || defined(SOFTWARE_STRICT)  // SOFTWARE_FUNCTION would inline them
#define SOFTWARE_FAR(name)
#define SOFTWARE_FAR_2(name)
#define SOFTWARE_USE_FAR(name)
#else
// Defines software::far::name as the function of one float (or two) that is visible here. In a kernel
// SOFTWARE_USE_FAR(name) then makes the name mean that; a type other than float finds the overload it finds without it.
#define SOFTWARE_FAR_OF(name, floats, types, ...)                                   \
  namespace software {                                                              \
  namespace near {                                                                  \
  template <class T>                                                                \
  SOFTWARE_INLINE T name##_inlined types {                                          \
    using namespace metal;                                                          \
    return name(__VA_ARGS__);                                                       \
  }                                                                                 \
  }                                                                                 \
  namespace far {                                                                   \
  SOFTWARE_FUNCTION float name floats { return near::name##_inlined(__VA_ARGS__); } \
  template <class T>                                                                \
  SOFTWARE_INLINE T name types {                                                    \
    return near::name##_inlined(__VA_ARGS__);                                       \
  }                                                                                 \
  }                                                                                 \
  }
#define SOFTWARE_FAR(name) SOFTWARE_FAR_OF(name, (float x), (T x), x)
#define SOFTWARE_FAR_2(name) SOFTWARE_FAR_OF(name, (float x, float y), (T x, T y), x, y)
#define SOFTWARE_USE_FAR(name) using software::far::name;
#endif

SOFTWARE_FAR(exp)
SOFTWARE_FAR(log)
SOFTWARE_FAR(tanh)
#define SOFTWARE_USE_FAR_FUNCTIONS SOFTWARE_USE_FAR(exp) SOFTWARE_USE_FAR(log) SOFTWARE_USE_FAR(tanh)
