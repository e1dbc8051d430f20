// The layouts extension: default layouts, and those of buffers and of executables' parameters and
// outputs.
#include <memory>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/layout.h"
#include "csrc/pjrt/objects.h"

struct PJRT_Layouts_SerializedLayout {
  PJRT_METAL_HANDLE(PJRT_Layouts_SerializedLayout)
  std::string text;
};

namespace pjrt_metal {
namespace {

PJRT_Layouts_MemoryLayout* New(std::span<const int64_t> minor_to_major) {
  return new PJRT_Layouts_MemoryLayout{LayoutText(minor_to_major), false};
}

void Destroy(PJRT_Layouts_MemoryLayout_Destroy_Args& args) {
  if (args.layout != nullptr && !Required(args.layout, "layout").of_executable) delete args.layout;
}

void Serialize(PJRT_Layouts_MemoryLayout_Serialize_Args& args) {
  auto* serialized = new PJRT_Layouts_SerializedLayout{Required(args.layout, "layout").text};
  args.serialized_bytes = serialized->text.data();
  args.serialized_bytes_size = serialized->text.size();
  args.serialized_layout = serialized;
  args.serialized_layout_deleter = DeleteHandle<PJRT_Layouts_SerializedLayout>;
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

// Programs are immutable; the C API's handles are not const.
PJRT_Layouts_MemoryLayout** Handles(const std::vector<PJRT_Layouts_MemoryLayout*>& layouts) {
  return const_cast<PJRT_Layouts_MemoryLayout**>(layouts.data());
}

void OutputLayouts(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args& args) {
  const auto& layouts = Required(args.executable, "executable").compiled->output_layouts;
  args.num_outputs = layouts.size();
  args.layouts = Handles(layouts);
}

void ParameterLayouts(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args& args) {
  const auto& layouts = Required(args.executable, "executable").compiled->parameter_layouts;
  args.num_parameters = layouts.size();
  args.layouts = Handles(layouts);
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
