#include "runtime/checkpoint/Reshard.h"

#include "heddle/Runtime/Formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <set>

namespace heddle::checkpoint {

using runtime::State;
using runtime::Tables;

namespace {

/// Roles that can fill a state, the best first.
std::vector<std::string> sourcesOf(const State &state) {
  const std::string role = roleOf(state.kind);
  if (role == "master")
    return {"master", "param"};
  // A parameter without a master is trained as it is, so that the checkpoint's
  // master is the truer one.
  if (role == "param" && state.dtype == HEDDLE_RT_F32)
    return {"master", "param"};
  if (role == "param")
    return {"param", "master"};
  return {role};
}

struct Source {
  const StateRecord *state = nullptr;
  std::string role;
};

Source sourceOf(const Manifest &manifest, const State &state,
                const std::string &name) {
  const auto tensor = manifest.tensors.find(name);
  if (tensor == manifest.tensors.end())
    return {};
  for (const std::string &role : sourcesOf(state))
    if (const auto at = tensor->second.find(role); at != tensor->second.end())
      return {&at->second, role};
  return {};
}

template <class To>
void convert(TensorType from, const std::byte *bytes, int64_t count,
             std::byte *to) {
  for (int64_t i = 0; i < count; ++i) {
    float value = 0;
    const auto read = [&]<class From>(From raw) {
      memcpy(&raw, bytes + i * int64_t(sizeof raw), sizeof raw);
      value = float(widen(raw));
    };
    if (from == TensorType::BF16)
      read(bf16());
    else if (from == TensorType::F16)
      read(f16());
    else
      read(float());
    To narrowed;
    narrow(value, narrowed);
    memcpy(to + i * int64_t(sizeof narrowed), &narrowed, sizeof narrowed);
  }
}

int64_t widthOf(const State &state) {
  return state.dtype == HEDDLE_RT_F32 ? 4 : 2;
}

bool isSame(TensorType type, heddle_rt_dtype dtype) {
  return (type == TensorType::F32 && dtype == HEDDLE_RT_F32) ||
         (type == TensorType::BF16 && dtype == HEDDLE_RT_BF16) ||
         (type == TensorType::F16 && dtype == HEDDLE_RT_F16);
}

} // namespace

int64_t ReadPlan::bytes() const {
  int64_t sum = 0;
  for (const Wanted &w : wanted)
    for (const PieceReads &piece : w.pieces)
      for (const Read &read : piece.reads)
        sum += read.part.elements() * tensorTypeBytes(w.source->type);
  return sum;
}

Result<void> checkFits(const Manifest &manifest, const Tables &tables) {
  std::set<std::string> known;
  for (const State &state : tables.states) {
    if (state.kind == "gradient")
      continue;
    for (int64_t i = 0; i < state.layers; ++i) {
      const std::string name = state.instanceName(i);
      if (state.kind == "parameter" || state.kind == kScalingKind)
        known.insert(name);
      const auto [source, role] = sourceOf(manifest, state, name);
      const bool isMoment = state.kind != "parameter" && state.kind != "master";
      if (!source && isMoment &&
          (manifest.step == 0 || state.kind == kScalingKind))
        continue;
      if (!source)
        return Error{fmt::format("the checkpoint has no '{}' ({}), which the "
                                 "program needs",
                                 name, roleOf(state.kind))};
      if (source->shape != state.file.shape)
        return Error{fmt::format("'{}' ({}): the checkpoint has shape [{}], "
                                 "the program [{}]",
                                 name, role, fmt::join(source->shape, ", "),
                                 fmt::join(state.file.shape, ", "))};
      if (source->type != TensorType::F32 && source->type != TensorType::BF16 &&
          source->type != TensorType::F16)
        return Error{fmt::format("'{}' ({}): the checkpoint has {}, expected "
                                 "F32, BF16 or F16",
                                 name, role, tensorTypeName(source->type))};
    }
  }
  for (const auto &[name, states] : manifest.tensors)
    if (!known.contains(name) && !states.contains(roleOf(kScalingKind)))
      return Error{fmt::format("the checkpoint has '{}', which the program "
                               "does not know",
                               name)};
  return {};
}

Result<ReadPlan> planReads(const Manifest &manifest, const Tables &tables,
                           int64_t rank) {
  ReadPlan plan;
  for (const State &state : tables.states) {
    Result<Share> share = shareOf(tables, rank, state);
    if (!share)
      return share.error();
    plan.shares.push_back(std::move(*share));
  }
  const int64_t stage = tables.stageOf(rank);
  for (size_t s = 0; s < tables.states.size(); ++s) {
    const State &state = tables.states[s];
    int64_t position = 0;
    for (int64_t instance : tables.instancesAt(state, stage)) {
      Wanted w{&state, instance, position++, &plan.shares[s], nullptr, "", {}};
      if (state.kind != "gradient") {
        const Source source =
            sourceOf(manifest, state, state.instanceName(instance));
        w.source = source.state;
        w.role = source.role;
      }
      for (const Piece &piece : w.share->pieces) {
        if (!w.source)
          break;
        PieceReads reads{&piece, {}};
        for (const Extent &extent : w.source->extents)
          if (const auto part = overlap(extent.box, piece.box))
            reads.reads.push_back({&extent, *part});
        w.pieces.push_back(std::move(reads));
      }
      plan.wanted.push_back(std::move(w));
    }
  }
  return plan;
}

Result<void> readWanted(const Checkpoint &checkpoint, const Wanted &wanted,
                        std::vector<std::byte> &stored) {
  const State &state = *wanted.state;
  const TensorType type = wanted.source->type;
  const int64_t width = widthOf(state), from = tensorTypeBytes(type);
  stored.assign(size_t(wanted.share->stored * width), std::byte(0));
  std::vector<std::byte> bytes, own;
  for (const PieceReads &piece : wanted.pieces) {
    const int64_t elements = piece.piece->box.elements();
    bytes.resize(size_t(elements * from));
    for (const Read &read : piece.reads)
      if (auto done = checkpoint.readPart(*read.extent, from, read.part,
                                          piece.piece->box, bytes);
          !done)
        return done;
    if (isSame(type, state.dtype)) {
      piece.piece->scatter(bytes.data(), width, stored.data());
      continue;
    }
    own.resize(size_t(elements * width));
    if (state.dtype == HEDDLE_RT_F32)
      convert<float>(type, bytes.data(), elements, own.data());
    else if (state.dtype == HEDDLE_RT_BF16)
      convert<bf16>(type, bytes.data(), elements, own.data());
    else
      convert<f16>(type, bytes.data(), elements, own.data());
    piece.piece->scatter(own.data(), width, stored.data());
  }
  return {};
}

} // namespace heddle::checkpoint
