//===- LowerTransfers.cpp - the step: what passes between stages => rt ----===//

#include "passes/Lowering/StepLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using stage::Part;

void StepLowering::lowerTransfers(Value batch) {
  Value begin = part(StageNumbers::kBatchBegin, batch),
        size = part(StageNumbers::kBatchSize, batch),
        end = arith::AddIOp::create(builder(), named("end"), begin, size);
  forTransfers(begin, end, [&](Value slot, int64_t type, Value) {
    bool sends = type & 2;
    StringRef direction = kDirections[type & 1];
    onEvent(false, (sends ? "made_" : "free_") + direction.str(),
            bufferOf(slot, sends), countOf(sends, direction), kTransfers);
  });
  auto group = rt::GroupOp::create(builder(), builder().getUnknownLoc());
  {
    OpBuilder::InsertionGuard guard(builder());
    builder().setInsertionPointToStart(&group.getBody().emplaceBlock());
    forTransfers(begin, end, [&](Value slot, int64_t type, Value transfer) {
      transferOver(slot, type & 2, type & 1,
                   part(StageNumbers::kTransferChannel, transfer));
    });
  }
  forTransfers(begin, end, [&](Value slot, int64_t type, Value) {
    bool sends = type & 2;
    StringRef direction = kDirections[type & 1];
    onEvent(true, (sends ? "sent_" : "landed_") + direction.str(),
            bufferOf(slot, sends), countOf(sends, direction), kTransfers);
  });
}

Value StepLowering::bufferOf(Value slot, bool sends) {
  return part(sends ? StageNumbers::kOut : StageNumbers::kLanding,
              number("uses", slot));
}

int64_t StepLowering::countOf(bool sends, StringRef direction) {
  return sends ? StageNumbers::kOuts : slots.landings[direction].size;
}

void StepLowering::forTransfers(
    Value begin, Value end,
    llvm::function_ref<void(Value slot, int64_t type, Value transfer)> each) {
  auto loop =
      rt::ForOp::create(builder(), builder().getUnknownLoc(), "transfer",
                        OpFoldResult(begin), OpFoldResult(end));
  OpBuilder::InsertionGuard guard(builder());
  builder().setInsertionPointToStart(&loop.getBody().front());
  Value transfer = number("transfers", loop.getInductionVariable());
  Value slot = part(StageNumbers::kTransferSlot, transfer);
  SmallVector<std::pair<int64_t, StringRef>> cases;
  for (int64_t gradient : {0, 1})
    if (slots.landings[kDirections[gradient]].size) {
      cases.push_back({gradient, gradient ? "receive a gradient"
                                          : "receive an activation"});
      cases.push_back(
          {2 + gradient, gradient ? "send a gradient" : "send an activation"});
    }
  if (cases.empty())
    return;
  inCases(part(StageNumbers::kTransferType, transfer), cases,
          [&](int64_t type) { each(slot, type, transfer); });
}

void StepLowering::transferOver(Value slot, bool sends, bool gradient,
                                Value channel) {
  Slots::Landing &landing = slots.landings[kDirections[gradient]];
  Value index = bufferOf(slot, sends);
  std::vector<std::string> names;
  for (int64_t shift : numbers->channelShifts)
    names.push_back(channelName(shift));
  SmallVector<std::pair<int64_t, StringRef>> cases;
  for (auto [i, name] : llvm::enumerate(names))
    cases.push_back({static_cast<int64_t>(i), name});
  inCases(channel, cases, [&](int64_t i) {
    for (const Family &family : sends ? landing.outs : landing.received) {
      Value place = entry(family, index);
      if (sends)
        rt::SendOp::create(builder(), builder().getUnknownLoc(), family.name,
                           place, names[i], kTransfers);
      else
        rt::ReceiveOp::create(builder(), builder().getUnknownLoc(), family.name,
                              place, names[i], kTransfers);
    }
  });
}

LogicalResult StepLowering::lowerSumEnds(stage::SumEndsOp op) {
  int64_t first = stages->placeOfEnd(Part::Embedding, 0),
          last = stages->placeOfEnd(Part::Head, 0);
  Value own = lowering.placeOf(op.getInput());
  lowering.bind(op.getResult(), own);
  if (first == last)
    return success();
  auto channel = [&](int64_t from, int64_t to) {
    int64_t shift = numbers->shiftTo(from, to, /*round=*/true);
    addChannel(shift);
    return channelName(shift);
  };
  std::string there = channel(first, last), back = channel(last, first);
  Value theirs = lowering.makeBuffer(
      "other_end", "a shared parameter's gradient at the other end",
      cast<RankedTensorType>(op.getType()), "communication");
  order("gradient_ready", kCompute, kTransfers);
  auto group = rt::GroupOp::create(builder(), op.getLoc());
  {
    OpBuilder::InsertionGuard guard(builder());
    builder().setInsertionPointToStart(&group.getBody().emplaceBlock());
    inCases(number("has_embedding", Value()), {{1, "embedding"}, {0, "head"}},
            [&](int64_t isFirst) {
              rt::SendOp::create(builder(), op.getLoc(), labelOf(op), own,
                                 isFirst ? there : back, kTransfers);
              rt::ReceiveOp::create(builder(), op.getLoc(), labelOf(op), theirs,
                                    isFirst ? back : there, kTransfers);
            });
  }
  order("gradient_here", kTransfers, kCompute);
  // Two numbers have one sum, in whichever order.
  lowering.addBuffers(op.getLoc(), labelOf(op), theirs, own,
                      cast<RankedTensorType>(op.getType()));
  return success();
}

void StepLowering::addChannel(int64_t shift) {
  std::string name = channelName(shift);
  if (program.op.getChannel(name))
    return;
  Builder builder(program.op.getContext());
  SmallVector<Attribute> channels(program.op.getChannelsAttr().getValue());
  channels.push_back(rt::ChannelAttr::get(program.op.getContext(), name,
                                          stage::kStageAxis, shift));
  program.op.setChannelsAttr(builder.getArrayAttr(channels));
}
