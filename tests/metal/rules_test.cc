// Breaks each rule that the fake Metal checks, with the messages that csrc/metal sends; run by test_rules.py, one
// fault a process. The fake must say the text of the table, and nothing else.
#include <cstdio>
#include <cstring>
#include <future>
#include <string>
#include <thread>

#include "csrc/metal/objc.h"
#include "tests/metal/fake/fake.h"

namespace pjrt_metal::metal {
namespace {

using enum Message;

constexpr const char* kAdd = R"(kernel void k_add(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
    constant float& scale [[buffer(2)]], uint3 tid [[thread_position_in_grid]]) {
  out[tid.x] = a[tid.x] * scale;
})";
constexpr uint64_t kBytes = 1024;

std::string compiler_said, unexpected;

void Release(const Ref& object) { Send<kRelease>(object.get()); }

// What a process that obeys has: a device, two buffers, a pipeline, a command buffer.
struct Metal {
  Pool pool;
  Ref devices = Ref::Adopt(GetRuntime().copy_all_devices());
  Ref device = Ref::Retain(Send<kObjectAtIndex>(devices.get(), uint64_t{0}));
  Ref queue = Ref::Adopt(Send<kNewCommandQueue>(device.get(), uint64_t{64}));
  Ref a = Buffer(kBytes), out = Buffer(kBytes);
  Ref commands = NewCommands();

  Ref NewCommands() const {
    const Ref descriptor = New(Class::kMTLCommandBufferDescriptor);
    Send<kSetErrorOptions>(descriptor.get(), kEncoderExecutionStatus);
    return Ref::Retain(Send<kCommandBufferWithDescriptor>(queue.get(), descriptor.get()));
  }
  Ref Buffer(uint64_t bytes, uint64_t options = 0) const {
    return Ref::Adopt(Send<kNewBufferWithLength>(device.get(), bytes, options));
  }
  static Ref Options(uint64_t language, bool fast = false) {
    const Ref options = New(Class::kMTLCompileOptions);
    Send<kSetFastMathEnabled>(options.get(), fast);
    Send<kSetLanguageVersion>(options.get(), language);
    return options;
  }
  Ref Library(const char* text, const Ref& options, Id* error) const {
    return Ref::Adopt(Send<kNewLibraryWithSource>(device.get(), String(text).get(), options.get(), error));
  }
  Ref Pipeline(const char* text = kAdd, const char* name = "k_add") const {
    Id error = nullptr;
    const Ref library = Library(text, Options(kLanguageVersion3_2), &error);
    if (!library) unexpected += ErrorText(error);
    const Ref function = Ref::Adopt(Send<kNewFunctionWithName>(library.get(), String(name).get()));
    const Ref descriptor = New(Class::kMTLComputePipelineDescriptor);
    Send<kSetComputeFunction>(descriptor.get(), function.get());
    Send<kSetPipelineLabel>(descriptor.get(), String(name).get());
    return Ref::Adopt(
        Send<kNewComputePipelineState>(device.get(), descriptor.get(), kPipelineOptionNone, nullptr, &error));
  }
  Ref Compute() const {
    return Ref::Retain(Send<kComputeCommandEncoder>(commands.get(), uint64_t{kDispatchTypeConcurrent}));
  }
  // A compute encoder in which everything is set for a dispatch.
  Ref Ready(const char* text = kAdd) const {
    const Ref encoder = Compute();
    const float scale = 2.0f;
    Send<kSetComputePipelineState>(encoder.get(), Pipeline(text).get());
    Send<kSetBuffer>(encoder.get(), a.get(), 0, 0);
    Send<kSetBuffer>(encoder.get(), out.get(), 0, 1);
    Send<kSetBytes>(encoder.get(), &scale, sizeof scale, 2);
    return encoder;
  }
  static void Dispatch(const Ref& encoder, Size threads = {64, 1, 1}, Size group = {64, 1, 1}) {
    Send<kDispatchThreads>(encoder.get(), threads, group);
  }
  static void End(const Ref& encoder) { Send<kEndEncoding>(encoder.get()); }
  void Finish() const {
    std::promise<void> completed;
    AddCompletedHandler(commands.get(), [&](Id) { completed.set_value(); });
    Send<kCommit>(commands.get());
    completed.get_future().get();
  }
  // Runs a kernel named k_add, and says how the command buffer ended.
  void RunKernel(const char* text) const {
    const Ref encoder = Ready(text);
    Dispatch(encoder);
    End(encoder);
    Finish();
    const Id error = Send<kError>(commands.get());
    const bool failed = Send<kStatus>(commands.get()) == kStatusError && error != nullptr;
    // The user must see it too.
    if (failed != (FakeViolations()[0] != 0) || (failed && ErrorText(error).find("k_add") == std::string::npos)) {
      unexpected += "the command buffer's status and error do not tell of the violation";
    }
  }
  // What the compiler says.
  void Compile(const char* text, uint64_t language = kLanguageVersion3_2) const {
    Id error = nullptr;
    if (!Library(text, Options(language), &error)) compiler_said = ErrorText(error) + "\n";
  }
};

#define KERNEL(body)                                                                                              \
  "kernel void k_add(device const float* a [[buffer(0)]], device float* out [[buffer(1)]], constant float& scale" \
  " [[buffer(2)]], uint3 tid [[thread_position_in_grid]]) {\n" body "\n}\n"

// A completion handler's block, wrong in one way.
void AddBlock(const Metal& m, void* isa, const char* signature) {
  struct {
    unsigned long reserved, size;
    const char* signature;
  } descriptor = {0, 40, signature};
  struct {
    void* isa;
    int32_t flags, reserved;
    void (*invoke)(void*, Id);
    void* descriptor;
    void* captured;
  } block = {isa, 1 << 30, 0, [](void*, Id) {}, &descriptor, nullptr};
  static_assert(sizeof block == 40);
  Send<kAddCompletedHandler>(m.commands.get(), reinterpret_cast<CompletionBlock*>(&block));
}

struct Fault {
  const char* name;
  void (*commit)(Metal&);
  const char* said;  // a violation, or what the compiler prints; empty: this is allowed
};

const Fault kFaults[] = {
    {"nothing", [](Metal& m) { m.RunKernel(kAdd); }, ""},
    // Encoders' arguments.
    {"buffer_index",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kSetBuffer>(e.get(), m.a.get(), 0, 31);
       m.End(e);
     },
     "buffer index 31, above 30"},
    {"bytes_index",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kSetBytes>(e.get(), "1234", 4, 31);
       m.End(e);
     },
     "buffer index 31, above 30"},
    {"buffer_offset",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kSetBuffer>(e.get(), m.a.get(), kBytes, 0);
       m.End(e);
     },
     "setBuffer at offset 1024 of 1024 bytes"},
    {"buffer_released",
     [](Metal& m) {
       auto e = m.Ready();
       const Id b = m.Buffer(4).get();
       Send<kSetBuffer>(e.get(), b, 0, 0);
       m.End(e);
     },
     "setBuffer of a released buffer"},
    {"offset_of_bytes",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kSetBufferOffset>(e.get(), uint64_t{4}, uint64_t{2});
       m.End(e);
     },
     "an offset for index 2, where no buffer is"},
    {"bytes_long",
     [](Metal& m) {
       auto e = m.Ready();
       char b[4097] = {};
       Send<kSetBytes>(e.get(), b, sizeof b, 2);
       m.End(e);
     },
     "setBytes of 4097 bytes"},
    {"bytes_none",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kSetBytes>(e.get(), "", 0, 2);
       m.End(e);
     },
     "setBytes of 0 bytes"},
    {"no_buffer",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kSetBuffer>(e.get(), nullptr, 0, 1);
       m.Dispatch(e);
       m.End(e);
     },
     "k_add: buffer 1 (out) is not bound"},
    {"device_alignment",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kSetBuffer>(e.get(), m.a.get(), 2, 0);
       m.Dispatch(e);
       m.End(e);
     },
     "k_add: buffer 0 (a) is bound at offset 2, not a multiple of 4"},
    {"constant_alignment",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kSetBuffer>(e.get(), m.a.get(), 4, 2);
       m.Dispatch(e);
       m.End(e);
     },
     "k_add: buffer 2 (scale) is bound at offset 4, not a multiple of 256"},
    {"no_pipeline",
     [](Metal& m) {
       auto e = m.Compute();
       m.Dispatch(e);
       m.End(e);
     },
     "dispatch without a pipeline"},
    {"nil_pipeline",
     [](Metal& m) {
       auto e = m.Compute();
       Send<kSetComputePipelineState>(e.get(), nullptr);
       m.End(e);
     },
     "setComputePipelineState of no pipeline"},
    {"threadgroup_size",
     [](Metal& m) {
       auto e = m.Ready();
       m.Dispatch(e, {64, 64, 1}, {32, 33, 1});
       m.End(e);
     },
     "allows 1 to 1024 in a threadgroup"},
    {"threadgroup_empty",
     [](Metal& m) {
       auto e = m.Ready();
       m.Dispatch(e, {64, 1, 1}, {64, 0, 1});
       m.End(e);
     },
     "64x1x1 threads by 64x0x1"},
    {"grid_empty",
     [](Metal& m) {
       auto e = m.Ready();
       m.Dispatch(e, {64, 0, 1});
       m.End(e);
     },
     "64x0x1 threads by 64x1x1"},
    // The life of encoders and command buffers.
    {"dispatch_after_end",
     [](Metal& m) {
       auto e = m.Ready();
       m.End(e);
       m.Dispatch(e);
     },
     "a command after endEncoding or commit"},
    {"bind_after_end",
     [](Metal& m) {
       auto e = m.Ready();
       m.End(e);
       Send<kSetBuffer>(e.get(), m.a.get(), 0, 0);
     },
     "a buffer is bound after endEncoding"},
    {"pipeline_after_end",
     [](Metal& m) {
       auto e = m.Ready();
       m.End(e);
       Send<kSetComputePipelineState>(e.get(), m.Pipeline().get());
     },
     "setComputePipelineState after endEncoding"},
    {"end_twice",
     [](Metal& m) {
       auto e = m.Ready();
       m.End(e);
       m.End(e);
     },
     "endEncoding of an encoder that is not open"},
    {"encoder_dropped",
     [](Metal& m) {
       const Pool pool;
       m.Compute();
     },
     "encoder released without endEncoding"},
    {"two_encoders",
     [](Metal& m) {
       auto e = m.Compute();
       auto f = m.Compute();
       m.End(f);
       Send<kRetain>(e.get());
     },
     "an encoder while another is open, or after commit"},
    {"encoder_after_commit",
     [](Metal& m) {
       m.Finish();
       m.End(m.Compute());
     },
     "an encoder while another is open, or after commit"},
    {"commit_open",
     [](Metal& m) {
       auto e = m.Ready();
       m.Finish();
       m.End(e);
     },
     "commit twice, or with an open encoder"},
    {"commit_twice",
     [](Metal& m) {
       m.Finish();
       Send<kCommit>(m.commands.get());
     },
     "commit twice, or with an open encoder"},
    {"times_too_early", [](Metal& m) { Send<kGpuStartTime>(m.commands.get()); }, "has not completed"},
    {"error_options",
     [](Metal& m) { Send<kCommandBufferWithDescriptor>(m.queue.get(), New(Class::kMTLCommandBufferDescriptor).get()); },
     "error options 0"},
    {"overlap",
     [](Metal& m) {
       auto e = m.Ready();
       m.Dispatch(e);
       m.Dispatch(e);
       m.End(e);
       m.Finish();
     },
     "no barrier is between them"},
    {"barrier_scope",
     [](Metal& m) {
       auto e = m.Ready();
       Send<kMemoryBarrier>(e.get(), uint64_t{2});
       m.End(e);
     },
     "a barrier of scope 2"},
    {"label_twice",
     [](Metal& m) {
       auto e = m.Compute();
       for (int i = 0; i < 2; ++i) Send<kSetLabel>(e.get(), String("label").get());
       m.End(e);
     },
     "an encoder labelled twice"},
    {"handler_after_commit",
     [](Metal& m) {
       m.Finish();
       AddCompletedHandler(m.commands.get(), [](Id) {});
     },
     "a handler after commit"},
    {"block_class", [](Metal& m) { AddBlock(m, nullptr, "v16@?0@8"); }, "not a plain stack block"},
    {"block_signature", [](Metal& m) { AddBlock(m, GetRuntime().stack_block_class, "v8@?0"); }, "block's signature"},
    {"dispatch_type", [](Metal& m) { m.End(Ref::Retain(Send<kComputeCommandEncoder>(m.commands.get(), uint64_t{2}))); },
     "dispatch type 2"},
    {"queue_full",
     [](Metal& m) {
       for (int i = 0; i < 64; ++i) m.NewCommands();
     },
     "64 command buffers of a queue are not committed"},
    {"freed_early",
     [](Metal& m) {
       auto e = m.Ready();
       m.Dispatch(e);
       m.End(e);
       e = {};
       for (int i = 0; i < 3; ++i) Release(m.a);
       m.Finish();
     },
     "k_add: buffer 0 was released before the GPU read it"},
    // Resources.
    {"managed", [](Metal& m) { m.Buffer(4, 1 << 4); }, "resource options 0x10"},
    {"untracked", [](Metal& m) { m.Buffer(4, 1 << 8); }, "resource options 0x100"},
    {"private_contents", [](Metal& m) { Send<kContents>(m.Buffer(4, 2 << 4).get()); }, "contents of a private buffer"},
    {"empty_buffer", [](Metal& m) { m.Buffer(0); }, "buffer of no bytes"},
    {"huge_buffer", [](Metal& m) { m.Buffer((1ull << 32) + 1); }, "buffer of 4294967297 bytes"},
    {"no_copy_part",
     [](Metal& m) {
       alignas(4096) static char page[4096];
       Send<kNewBufferWithBytesNoCopy>(m.device.get(), page, 100, 0, nullptr);
     },
     "no-copy buffer of parts of pages"},
    {"no_copy_start",
     [](Metal& m) {
       alignas(4096) static char pages[8192];
       Send<kNewBufferWithBytesNoCopy>(m.device.get(), pages + 64, 4096, 0, nullptr);
     },
     "no-copy buffer of parts of pages"},
    {"no_copy_private",
     [](Metal& m) {
       alignas(4096) static char page[4096];
       Send<kNewBufferWithBytesNoCopy>(m.device.get(), page, 4096, 32, nullptr);
     },
     "no-copy buffer with a deallocator, or options 0x20"},
    {"fast_math",
     [](Metal& m) {
       Id e = nullptr;
       m.Library(kAdd, m.Options(kLanguageVersion3_2, true), &e);
     },
     "fast math"},
    {"language",
     [](Metal& m) {
       FakeMacos(13);
       Id e = nullptr;
       m.Library(kAdd, m.Options(kLanguageVersion3_2), &e);
     },
     "language version 0x30002"},
    // Objects.
    {"use_after_release",
     [](Metal& m) {
       Release(m.a);
       Send<kContents>(m.a.get());
     },
     "MTLBuffer used after its release: contents"},
    {"release_twice",
     [](Metal& m) {
       Release(m.a);
       Release(m.a);
     },
     "MTLBuffer used after its release: release"},
    {"unknown_message", [](Metal& m) { Send<kCommit>(m.device.get()); }, "MTLDevice does not know commit"},
    {"name_released",
     [](Metal& m) {
       Id e = nullptr;
       auto l = m.Library(kAdd, m.Options(kLanguageVersion3_2), &e);
       const Id name = String("k_add").get();
       Send<kNewFunctionWithName>(l.get(), name);
     },
     "function name used after release"},
    {"array_index", [](Metal& m) { Send<kObjectAtIndex>(m.devices.get(), uint64_t{1}); }, "index 1 of an array of 1"},
    {"encoding",
     [](Metal&) {
       const Id s = Send<kAlloc>(GetRuntime().classes[static_cast<size_t>(Class::kNSString)]);
       Send<kInitWithBytes>(s, "", 0, 5);
     },
     "encoding 5"},
    {"no_pool", [](Metal& m) { std::thread([&] { Send<kName>(m.device.get()); }).join(); },
     "NSString autoreleased without a pool"},
    {"pool_of_another_thread",
     [](Metal&) {
       auto pool = New(Class::kNSAutoreleasePool);
       std::thread([&] { pool = {}; }).join();
     },
     "a pool is not released on the thread that made it"},
    {"pools_crossed",
     [](Metal&) {
       auto outer = New(Class::kNSAutoreleasePool), inner = New(Class::kNSAutoreleasePool);
       outer = {};
     },
     "pools not nested"},
    // Kernels.
    {"read_outside", [](Metal& m) { m.RunKernel(KERNEL("out[tid.x] = a[tid.x + 256];")); },
     "reads 4 bytes at byte 1024 of buffer a (1024 bytes), which is out of bounds"},
    {"write_outside", [](Metal& m) { m.RunKernel(KERNEL("out[int(tid.x) - 1] = scale;")); },
     "writes 4 bytes at byte -4 of buffer out (1024 bytes), which is out of bounds"},
    {"args_outside", [](Metal& m) { m.RunKernel(KERNEL("out[tid.x] = (&scale)[1];")); },
     "of buffer scale (4 bytes), which is out of bounds"},
    {"uninitialized", [](Metal& m) { m.RunKernel(KERNEL("threadgroup float t[64];\nout[tid.x] = t[tid.x];")); },
     "which no thread has written"},
    {"no_barrier",
     [](Metal& m) { m.RunKernel(KERNEL("threadgroup float t[64];\nt[tid.x] = 1.0f;\nout[tid.x] = t[63 - tid.x];")); },
     "no thread has written"},
    {"barrier",
     [](Metal& m) {
       m.RunKernel(
           KERNEL("threadgroup float t[64];\nt[tid.x] = "
                  "1.0f;\nthreadgroup_barrier(metal::mem_flags::mem_threadgroup);\nout[tid.x] = t[63 - tid.x];"));
     },
     ""},
    {"divergence",
     [](Metal& m) {
       m.RunKernel(KERNEL("if (tid.x > 3) threadgroup_barrier(metal::mem_flags::mem_threadgroup);\nout[tid.x] = 1;"));
     },
     "barrier divergence"},
    {"order", [](Metal& m) { m.RunKernel(KERNEL("out[0] = float(tid.x);")); },
     "its result depends on the order of threads"},
    {"threadgroup_bytes", [](Metal& m) { m.RunKernel(KERNEL("threadgroup float t[8193];\nt[tid.x] = 1.0f;")); },
     "Apple GPUs have 32768"},
    // What does not compile.
    {"syntax", [](Metal& m) { m.Compile(KERNEL("out[tid.x] = undeclared;")); }, "undeclared"},
    {"bfloat",
     [](Metal& m) {
       FakeMacos(13);
       m.Compile("kernel void k(device bfloat* x [[buffer(0)]]) {}", kLanguageVersion3_0);
     },
     "unknown type name 'bfloat'"},
    {"address_space", [](Metal& m) { m.Compile("kernel void k(float* x [[buffer(0)]]) {}"); }, "address spaces"},
    {"parameter_index", [](Metal& m) { m.Compile("kernel void k(device float* x [[buffer(31)]]) {}"); },
     "out of bounds: 0 to 30"},
    {"attribute", [](Metal& m) { m.Compile("kernel void k(uint3 p [[thread_index]]) {}"); },
     "does not know the attribute"},
    {"builtin_type", [](Metal& m) { m.Compile("kernel void k(uint p [[thread_position_in_grid]]) {}"); },
     "the fake gives it as uint3"},
};

int Main(int count, char** arguments) {
  for (const Fault& fault : kFaults) {
    if (count == 1) std::puts(fault.name);
    if (count == 1 || std::strcmp(fault.name, arguments[1]) != 0) continue;
    fault.commit(*new Metal);  // not taken apart: the fault may have
    const std::string said = FakeViolations() + compiler_said;
    const bool one_line = said.find('\n') == said.size() - 1 || !compiler_said.empty();
    const bool as_told = *fault.said == 0 ? said.empty() : one_line && said.find(fault.said) != std::string::npos;
    if (as_told && unexpected.empty()) return 0;
    std::fprintf(stderr, "said: %s%s\nexpected: %s\n", said.c_str(), unexpected.c_str(), fault.said);
    return 1;
  }
  return count > 1;
}

}  // namespace
}  // namespace pjrt_metal::metal

int main(int count, char** arguments) { return pjrt_metal::metal::Main(count, arguments); }
