//===- ManifestWrite.cpp - manifest.json and COMMIT, written --------------===//

#include "runtime/checkpoint/Checksum.h"
#include "runtime/checkpoint/Manifest.h"

#include "heddle/Support/Document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace heddle::checkpoint {

namespace {

std::string quoted(const std::string &text) { return jsonString(text); }

std::string quotedOrNull(const std::string &text) {
  return text.empty() ? "null" : quoted(text);
}

std::string list(const std::vector<int64_t> &numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ","));
}

std::string exact(double value) { return fmt::format("\"{:a}\"", value); }

std::string textOf(const FileRecord &f) {
  return fmt::format("{{\"crc32c\":\"{:08x}\",\"header_crc32c\":\"{:08x}\","
                     "\"header_nbytes\":{},\"name\":{},\"nbytes\":{}}}",
                     f.crc, f.headerCrc, f.headerBytes, quoted(f.name),
                     f.bytes);
}

std::string textOf(const Extent &e) {
  return fmt::format(
      "{{\"b\":[{},{}],\"crc32c\":\"{:08x}\",\"f\":{},\"k\":{},\"o\":{},"
      "\"s\":{}}}",
      e.begin, e.end, e.crc, e.file, quoted(e.key), list(e.box.offset),
      list(e.box.size));
}

std::string textOf(const StateRecord &s) {
  std::string text =
      fmt::format("{{\"dtype\":\"{}\",\"extents\":[", tensorTypeName(s.type));
  for (const Extent &extent : s.extents)
    text += (text.ends_with('[') ? "" : ",") + textOf(extent);
  return text + fmt::format("],\"shape\":{}}}", list(s.shape));
}

std::string textOf(const Scaling &s) {
  return fmt::format("{{\"growth\":{},\"hysteresis\":{},\"scale\":{},"
                     "\"skipped_run\":{}}}",
                     s.finiteSteps, s.patience, exact(s.scale), s.skippedInRow);
}

std::string textOf(const Progress &p) {
  const runtime::Optimizer &o = p.optimizer;
  const runtime::Schedule &s = p.schedule;
  std::string text =
      fmt::format("{{\"data\":{{\"dataset_nbytes\":{},\"global_batch\":{},"
                  "\"next_sample\":{},\"sequence_length\":{}}},",
                  p.dataBytes, p.globalBatch, p.nextSample, p.sequenceLength);
  text += fmt::format("\"history\":{{\"device_seconds\":{},\"interruptions\":"
                      "{}}},",
                      p.deviceSeconds, p.interruptions);
  text += fmt::format(
      "\"optimizer\":{{\"beta1\":{},\"beta2\":{},\"clip_norm\":{},\"eps\":{},"
      "\"learning_rate\":{},\"skipped_steps\":{},\"type\":{},"
      "\"weight_decay\":{}}},",
      exact(o.betas.first), exact(o.betas.second), exact(o.clipNorm),
      exact(o.eps), exact(o.learningRate), p.carried.skippedSteps,
      quoted(o.type), exact(o.weightDecay));
  // Random.h: the words are counted, so seed and step are the whole state.
  text += fmt::format("\"rng\":{{\"kind\":\"philox4x32-10\",\"seed\":{}}},",
                      p.seed);
  text += fmt::format("\"scaler\":{},",
                      p.carried.scaling ? textOf(*p.carried.scaling) : "null");
  return text + fmt::format("\"sched\":{{\"final_lr\":{},\"steps\":{},"
                            "\"type\":{},\"warmup_steps\":{}}}}}",
                            exact(s.finalLr), s.steps, quoted(s.type),
                            s.warmupSteps);
}

} // namespace

std::string manifestText(const Manifest &m) {
  std::string text =
      fmt::format("{{\"ckpt_id\":{},\"created_unix_ns\":{},\n\"files\":[",
                  quoted(m.id), m.createdUnixNs);
  for (const FileRecord &file : m.files)
    text += (text.ends_with('[') ? "\n" : ",\n") + textOf(file);
  text += fmt::format("],\n\"format\":\"heddle-checkpoint\",\"min_reader\":1,"
                      "\"model_hash\":{},\"parent_ckpt_id\":{},"
                      "\"profile\":{},\n\"state\":{},\"step\":{},\n"
                      "\"tensors\":{{",
                      quoted(modelHash(m)), quotedOrNull(m.parent),
                      quoted(m.profile), textOf(m.progress), m.step);
  for (const auto &[name, states] : m.tensors) {
    text +=
        fmt::format("{}\n{}:{{", text.ends_with('{') ? "" : ",", quoted(name));
    for (const auto &[role, state] : states)
      text += fmt::format("{}\n {}:{}", text.ends_with('{') ? "" : ",",
                          quoted(role), textOf(state));
    text += '}';
  }
  text += "},\n\"version\":1,\"writer\":{\"mesh\":[";
  for (const auto &[axis, size] : m.mesh)
    text += fmt::format("{}[{},{}]", text.ends_with('[') ? "" : ",",
                        quoted(axis), size);
  return text + fmt::format("],\"program\":{}}}}}\n", quotedOrNull(m.program));
}

std::string modelHash(const Manifest &manifest) {
  std::string text;
  for (const auto &[name, states] : manifest.tensors)
    for (const auto &[role, state] : states)
      text += fmt::format("{} {} {} {}\n", quoted(name), role,
                          tensorTypeName(state.type), list(state.shape));
  return sha256(text);
}

std::string commitText(const Manifest &manifest, std::string_view text) {
  return fmt::format("heddle-commit 1 {} {} {} {}\n", manifest.id,
                     manifest.step, text.size(), sha256(text));
}

std::string roleOf(const std::string &kind) {
  if (kind == "parameter")
    return "param";
  return kind.starts_with("adam_") ? kind.substr(5) : kind;
}

std::string stepFolder(int64_t step) {
  return fmt::format("step-{:010}", step);
}

} // namespace heddle::checkpoint
