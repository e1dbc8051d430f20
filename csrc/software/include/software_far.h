// Short functions out of line as well, for kernels that call very many: inlining them all would keep the host's
// compiler busy for seconds, and a call costs up to a quarter more than the function inlined.
#pragma once

#ifdef __clang__  // SOFTWARE_FUNCTION would inline them
#define SOFTWARE_FAR(name)
#define SOFTWARE_USE_FAR(name)
#else
// Defines software::far::name as the name that is visible here. In a kernel SOFTWARE_USE_FAR(name) then makes the name
// mean that; a type other than float finds the same overload as without it.
#define SOFTWARE_FAR(name)                                                  \
  namespace software {                                                      \
  namespace near {                                                          \
  template <class T>                                                        \
  SOFTWARE_INLINE T name##_inlined(T x) {                                   \
    using namespace metal;                                                  \
    return name(x);                                                         \
  }                                                                         \
  }                                                                         \
  namespace far {                                                           \
  SOFTWARE_FUNCTION float name(float x) { return near::name##_inlined(x); } \
  template <class T>                                                        \
  SOFTWARE_INLINE T name(T x) {                                             \
    return near::name##_inlined(x);                                         \
  }                                                                         \
  }                                                                         \
  }
#define SOFTWARE_USE_FAR(name) using software::far::name;
#endif

SOFTWARE_FAR(exp)
SOFTWARE_FAR(log)
SOFTWARE_FAR(tanh)
#define SOFTWARE_USE_FAR_FUNCTIONS SOFTWARE_USE_FAR(exp) SOFTWARE_USE_FAR(log) SOFTWARE_USE_FAR(tanh)
