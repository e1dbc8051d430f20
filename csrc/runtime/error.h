// Errors inside the plugin are C++ exceptions of one type; csrc/pjrt turns them into PJRT_Error,
// queues carry them in events. Codes are absl's, which PJRT_Error_Code repeats.
#pragma once

#include <stdexcept>
#include <string>

namespace pjrt_metal {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

inline Error InvalidArgument(const std::string& m) { return Error(Code::kInvalidArgument, m); }
inline Error FailedPrecondition(const std::string& m) { return Error(Code::kFailedPrecondition, m); }
inline Error Unimplemented(const std::string& m) { return Error(Code::kUnimplemented, m); }
inline Error Internal(const std::string& m) { return Error(Code::kInternal, m); }
inline Error ResourceExhausted(const std::string& m) { return Error(Code::kResourceExhausted, m); }

}  // namespace pjrt_metal
