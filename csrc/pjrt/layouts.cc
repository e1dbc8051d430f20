// The layouts extension: default layouts, and those of buffers and of executables' parameters and outputs.
#include <memory>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/layout.h"
#include "csrc/pjrt/objects.h"

struct PJRT_Layouts_MemoryLayout {
  std::string text;
};

struct PJRT_Layouts_SerializedLayout {
  std::string text;
};

namespace pjrt_metal {
namespace {

PJRT_Layouts_MemoryLayout* New(std::span<const int64_t> minor_to_major) {
  return new PJRT_Layouts_MemoryLayout{LayoutText(minor_to_major)};
}

void Destroy(PJRT_Layouts_MemoryLayout_Destroy_Args& args) { delete args.layout; }

void Serialize(PJRT_Layouts_MemoryLayout_Serialize_Args& args) {
  auto* serialized =
      new PJRT_Layouts_SerializedLayout{Required(args.layout, "layout").text};
  args.serialized_bytes = serialized->text.data();
  args.serialized_bytes_size = serialized->text.size();
  args.serialized_layout = serialized;
  args.serialized_layout_deleter = [](PJRT_Layouts_SerializedLayout* layout) { delete layout; };
}

void OfBuffer(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args& args) {
  args.layout = New(Required(args.buffer, "buffer").buffer->minor_to_major());
}

PJRT_Layouts_MemoryLayout* Default(PJRT_Buffer_Type type, const int64_t* dims, size_t num_dims) {
  return New(DeviceLayout(nullptr, ToDType(type), Required(dims, num_dims, "dims")));
}

void ClientDefault(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args& args) {
  Required(args.client, "client");
  args.layout = Default(args.type, args.dims, args.num_dims);
}

void TopologyDefault(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args& args) {
  Required(args.topology_description, "topology_description");
  args.layout = Default(args.type, args.dims, args.num_dims);
}

// The client destroys each layout but not the array: it is kept here, per thread, until the next call.
PJRT_Layouts_MemoryLayout** Layouts(const std::vector<TensorInfo>& tensors) {
  static thread_local std::vector<PJRT_Layouts_MemoryLayout*> handles;
  handles.clear();
  for (const TensorInfo& tensor : tensors) handles.push_back(New(tensor.minor_to_major));
  return handles.data();
}

void OutputLayouts(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args& args) {
  const auto& outputs = Required(args.executable, "executable").compiled->program->outputs;
  args.num_outputs = outputs.size();
  args.layouts = Layouts(outputs);
}

void ParameterLayouts(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args& args) {
  const auto& parameters = Required(args.executable, "executable").compiled->program->parameters;
  args.num_parameters = parameters.size();
  args.layouts = Layouts(parameters);
}

}  // namespace

PJRT_Extension_Base* LayoutsExtension(PJRT_Extension_Base* next) {
  static PJRT_Layouts_Extension extension = {
      {StructSize<PJRT_Layouts_Extension>(), PJRT_Extension_Type_Layouts, next},
      Entry<Destroy>,
      Entry<Serialize>,
      Entry<ClientDefault>,
      Entry<OfBuffer>,
      Entry<TopologyDefault>,
      Entry<OutputLayouts>,
      Entry<ParameterLayouts>,
  };
  return &extension.base;
}

}  // namespace pjrt_metal
