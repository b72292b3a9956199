// Messages between two ranks of the group along the axis of the attribute `over`. Both issue their
// messages in the same order.
//
// send_begin(x): starts to send x. Attribute: peer, the place of the other rank in the group.
// send_end(x): later work waits until x has been sent; x stays as it is until then.
// receive_begin(): starts to receive a tensor. Attributes: peer, shape, dtype.
// receive_end(y): later work waits for it.
// Attribute of all: slot (integer).
#include "base/error.h"
#include "ops/definitions.h"

namespace dltrain {
namespace {

SpecList infer_receive(SpecSpan, const Attributes& attributes) {
  const std::vector<int64_t> extents = attributes.integers("shape");
  const auto dtype = dtype_from_name(attributes.text("dtype"));
  check_internal(dtype.has_value(), "receive: dtype '{}'", attributes.text("dtype"));
  return {{Shape(std::span(extents)), *dtype}};
}

}  // namespace

constinit const OpDef kSendBeginOp{.name = "send_begin",
                                   .doc = "starts to send a tensor to another rank",
                                   .signature = "x[*]:any",
                                   .has_effect = true,
                                   .message = MessageKind::send,
                                   .slot = SlotUse::begins};
constinit const OpDef kSendEndOp{.name = "send_end",
                                 .doc = "waits until a tensor has been sent",
                                 .signature = "x[*]:any",
                                 .has_effect = true,
                                 .message = MessageKind::send,
                                 .slot = SlotUse::ends};
constinit const OpDef kReceiveBeginOp{.name = "receive_begin",
                                      .doc = "starts to receive a tensor from another rank",
                                      .infer = infer_receive,
                                      .has_effect = true,
                                      .message = MessageKind::receive,
                                      .slot = SlotUse::begins};
constinit const OpDef kReceiveEndOp{.name = "receive_end",
                                    .doc = "waits for a tensor from another rank",
                                    .signature = "x[*]:any -> x!",
                                    .has_effect = true,
                                    .message = MessageKind::receive,
                                    .slot = SlotUse::ends};

}  // namespace dltrain
