// Every other operator of the list: one boxed function that runs torch's CPU kernel on the same memory.
//
// Operators that are not on the list have no kernel, and torch refuses them as it does on torch_musa.
#include "host.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <sstream>

namespace musa_sim {
namespace {

std::mutex g_lock;
std::map<std::string, int64_t> g_calls;  // per operator
bool g_recording = false;

struct Signature {
  int64_t size;  // elements of all tensors
  std::string json;
};
std::map<std::string, Signature> g_signatures;

// --- what is recorded of a call -------------------------------------------------------------------------------------

void write_list(std::ostream& out, at::IntArrayRef numbers) {
  out << '[';
  for (size_t k = 0; k < numbers.size(); ++k) out << (k ? "," : "") << numbers[k];
  out << ']';
}

// Two texts of an argument: `key` tells signatures apart (rank, not shape), `json` allows to make such an argument again.
struct Description {
  std::ostringstream key, json;
  int64_t size = 0;

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      key << "undefined";
      json << "null";
      return;
    }
    const bool contiguous = tensor.is_contiguous();
    key << tensor.scalar_type() << tensor.dim() << (contiguous ? "c" : "s") << (tensor.numel() ? "" : "0");
    json << R"({"tensor":")" << c10::toString(tensor.scalar_type()) << R"(","shape":)";
    write_list(json, tensor.sizes());
    if (!contiguous) {
      json << R"(,"stride":)";
      write_list(json, tensor.strides());
    }
    if (tensor.numel() > 0 && !tensor.is_complex()) {
      const auto [low, high] = at::aminmax(tensor.is_floating_point() ? tensor : tensor.to(at::kLong));
      const auto a = low.item<double>(), b = high.item<double>();
      if (std::isfinite(a) && std::isfinite(b)) json << R"(,"low":)" << a << R"(,"high":)" << b;
    }
    json << '}';
    size += tensor.numel();
  }

  void add(const c10::IValue& value, bool is_dtype) {
    std::ostringstream text;
    text.precision(17);
    if (value.isNone()) {
      text << "null";
    } else if (value.isTensor()) {
      return add(value.toTensor());
    } else if (value.isBool()) {
      text << (value.toBool() ? "true" : "false");
    } else if (is_dtype) {
      text << R"({"dtype":")" << c10::toString(value.toScalarType()) << "\"}";
    } else if (value.isInt()) {
      text << value.toInt();
    } else if (value.isDouble()) {
      if (std::isfinite(value.toDouble())) {
        text << value.toDouble() << (value.toDouble() == std::floor(value.toDouble()) ? ".0" : "");
      } else {
        text << R"({"float":")" << value.toDouble() << "\"}";
      }
    } else if (value.isString()) {
      text << '"' << value.toStringRef() << '"';
    } else if (value.isDevice()) {
      text << R"({"device":true})";
    } else if (value.isGenerator()) {
      text << R"({"generator":true})";
    } else if (value.isOptionalTensorList()) {
      return add_list(value.toOptionalTensorVector(), [&](const auto& entry) { add(entry.value_or(at::Tensor())); });
    } else if (value.isTensorList()) {
      return add_list(value.toTensorVector(), [&](const auto& entry) { add(entry); });
    } else if (value.isList()) {
      return add_list(value.toListRef(), [&](const auto& entry) { add(entry, false); });
    } else {
      text << R"({"unknown":")" << value.tagKind() << "\"}";
    }
    const bool number = value.isInt() || value.isDouble();  // of numbers only the kind tells signatures apart
    key << (number && !is_dtype ? value.tagKind() : text.str());
    json << text.str();
  }

  template <class List, class Add>
  void add_list(const List& list, Add&& add_entry) {
    const char* comma = "";
    key << '[';
    json << '[';
    for (const auto& entry : list) {
      key << ' ';
      json << comma;
      add_entry(entry);
      comma = ",";
    }
    key << ']';
    json << ']';
  }
};

void note(const c10::FunctionSchema& schema, const std::string& name, at::ArrayRef<c10::IValue> host_arguments) {
  const std::lock_guard<std::mutex> lock(g_lock);
  ++g_calls[name];
  if (!g_recording) return;
  Description call;
  call.key << name;
  for (size_t k = 0; k < host_arguments.size(); ++k) {
    call.key << ' ';
    call.json << (k ? "," : "");
    const auto& type = schema.arguments()[k].real_type();
    const auto& inner = type->kind() == c10::TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType() : type;
    call.add(host_arguments[k], inner->kind() == c10::TypeKind::ScalarTypeType);
  }
  const std::string json = R"({"op":")" + name + R"(","args":[)" + call.json.str() + "]}";
  auto& kept = g_signatures.try_emplace(call.key.str(), Signature{call.size, json}).first->second;
  if (call.size > 0 && (kept.size == 0 || call.size < kept.size)) kept = {call.size, json};
}

// --- the boxed kernel -----------------------------------------------------------------------------------------------

bool takes_host_indices(const std::string& name) {
  return name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_" ||
         name == "aten::_unsafe_index" || name == "aten::index_put";
}

// The generator that draws: the one given, which must be the device's, or the device's own.
c10::IValue host_draws(const c10::IValue& given, const Call& call) {
  return host_generator(given.isNone() ? default_generator(call.index()) : given.toGenerator());
}

bool is_generator(const c10::Argument& argument) {
  const auto& type = argument.type();
  const auto& inner = type->kind() == c10::TypeKind::OptionalType ? type->castRaw<c10::OptionalType>()->getElementType() : type;
  return inner->kind() == c10::TypeKind::GeneratorType;
}

std::vector<c10::IValue> host_arguments(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> given, Call& call) {
  const bool indexing = takes_host_indices(schema.name());
  for (const auto& value : given) {
    call.host_allowed = indexing && value.isOptionalTensorList();  // the indices, not what is indexed or written
    map_tensors(value, [&](const at::Tensor& tensor) { return call.meet(tensor), tensor; });
    if (value.isDevice()) call.meet(value.toDevice());
  }
  std::vector<c10::IValue> made;
  for (size_t k = 0; k < given.size(); ++k) {
    const auto& argument = schema.arguments()[k];
    if (argument.is_out()) {  // may be resized: the kernel writes into a tensor of its own
      made.push_back(map_tensors(given[k], [](const at::Tensor& t) { return at::empty({0}, t.options().device(at::kCPU)); }));
    } else if (is_generator(argument)) {
      made.push_back(host_draws(given[k], call));
    } else if (given[k].isDevice()) {
      made.emplace_back(c10::Device(c10::DeviceType::CPU));
    } else {
      made.push_back(map_tensors(given[k], [&](const at::Tensor& tensor) { return call.to_host(tensor); }));
    }
  }
  return made;
}

// What a result that is written to (in place, or out=) stands for: the caller's own tensor, with the kernel's values.
c10::IValue callers_own(const c10::FunctionSchema& schema, const c10::AliasInfo& alias, const c10::IValue& result,
                        at::ArrayRef<c10::IValue> given) {
  for (size_t k = 0; k < given.size(); ++k) {
    const auto& argument = schema.arguments()[k];
    if (argument.alias_info() == nullptr || argument.alias_info()->beforeSets() != alias.beforeSets()) continue;
    if (argument.is_out()) {
      const at::Tensor own = given[k].toTensor(), made = result.toTensor();
      if (own.sizes() != made.sizes()) own.resize_(made.sizes());
      own.copy_(made);
    }
    return given[k];
  }
  TORCH_CHECK(false, "musa (simulated): no argument of ", schema.name(), " is what it returns");
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> given(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  torch::jit::drop(stack, count);

  const std::string name = schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  Call call(name);
  torch::jit::Stack host = host_arguments(schema, given, call);
  at::AutoDispatchBelowADInplaceOrView guard;
  note(schema, name, host);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &host);

  for (size_t k = 0; k < schema.returns().size(); ++k) {
    const auto* alias = schema.returns()[k].alias_info();
    stack->push_back(alias != nullptr && alias->isWrite()
                         ? callers_own(schema, *alias, host[k], given)
                         : map_tensors(host[k], [&](const at::Tensor& tensor) { return call.to_device(tensor); }));
  }
}

// False for what has no kernel of its own to replace: views, and what torch composes of other operators on every device.
bool wanted(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  if (op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) return false;
  const bool composed = op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
                        op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
  const bool listed = op.schema().name().rfind("aten::_foreach_", 0) == 0;
  if (composed && !listed && !op.hasKernelForDispatchKey(DispatchKey::CPU)) return false;
  for (const auto& result : op.schema().returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return false;
  }
  return true;
}

// Gives one overload, such as "add" "Tensor", to the device; returns whether it was wanted.
bool offer(std::string name, std::string overload) {
  static torch::Library* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  const auto op = c10::Dispatcher::singleton().findSchema({"aten::" + name, overload});
  if (!op || !wanted(*op)) return false;
  const std::string full = overload.empty() ? name : name + "." + overload;
  library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  return true;
}

std::vector<std::string> calls() {
  const std::lock_guard<std::mutex> lock(g_lock);
  std::vector<std::string> found;
  for (const auto& [name, count] : g_calls) found.push_back(name + " " + std::to_string(count));
  return found;
}

std::vector<std::string> signatures() {
  const std::lock_guard<std::mutex> lock(g_lock);
  std::vector<std::string> found;
  for (const auto& [key, signature] : g_signatures) found.push_back(signature.json);
  return found;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(musa_sim, m) {
  m.def("offer(str name, str overload) -> bool", offer);
  m.def("calls() -> str[]", calls);
  m.def("record(bool on) -> ()", [](bool on) { g_recording = on; });
  m.def("signatures() -> str[]", signatures);
}

}  // namespace musa_sim
