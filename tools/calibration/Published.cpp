#include "Published.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

using namespace heddle;
using namespace heddle::tool;

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Cells of one record; a quoted one may go over several lines.
static bool readRecord(std::istream &in, std::vector<std::string> &cells) {
  cells.assign(1, "");
  bool isQuoted = false, any = false;
  for (int c; (c = in.get()) != EOF;) {
    any = true;
    if (c == '"' && isQuoted && in.peek() == '"')
      cells.back() += static_cast<char>(in.get());
    else if (c == '"')
      isQuoted = !isQuoted;
    else if (c == ',' && !isQuoted)
      cells.emplace_back();
    else if (c == '\n' && !isQuoted)
      return true;
    else if (c != '\r')
      cells.back() += static_cast<char>(c);
  }
  return any;
}

Result<std::vector<Row>> heddle::tool::readCsv(const std::string &path) {
  std::ifstream in(path);
  std::vector<std::string> header, cells;
  if (!in || !readRecord(in, header))
    return Error{fmt::format("{}: cannot be read, expected a table with a "
                             "header",
                             path)};
  std::vector<Row> rows;
  while (readRecord(in, cells)) {
    if (cells.size() != header.size())
      return Error{fmt::format("{}: record {}: found {} cells, expected {}",
                               path, rows.size() + 2, cells.size(),
                               header.size())};
    Row &row = rows.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i)
      row[header[i]] = cells[i];
  }
  return rows;
}

//===----------------------------------------------------------------------===//
// One row
//===----------------------------------------------------------------------===//

namespace {

class Reader {
public:
  explicit Reader(const Row &row) : row(row) {}
  Result<Published> read();

private:
  const std::string &text(const std::string &column) const {
    static const std::string none;
    auto found = row.find(column);
    return found == row.end() ? none : found->second;
  }
  bool says(const std::string &column, std::string_view word) const {
    return text(column).find(word) != std::string::npos;
  }
  double number(const std::string &column, double byDefault = 0) const {
    return text(column).empty() ? byDefault : std::stod(text(column));
  }
  std::int64_t count(const std::string &column, std::int64_t byDefault) const {
    return static_cast<std::int64_t>(
        number(column, static_cast<double>(byDefault)));
  }
  void assume(const std::string &what) {
    out.assumed += out.assumed.empty() ? what : "; " + what;
  }

  Result<void> readModel();
  Result<void> readExperts();
  Result<void> readCluster();
  void readStages();
  void readStates();
  void readRecompute();
  void readUnits();
  void readPractice();
  void readTime();
  bool isNvidia() const { return says("source", "NVIDIA"); }
  bool isMegatron() const {
    return isOldMegatron() || says("source", "Mega") ||
           says("source", "NeMo") || says("source", "Qi et al");
  }
  bool isOldMegatron() const {
    return says("source", "Korthikanti") || says("source", "Narayanan");
  }

  const Row &row;
  Published out;
};

} // namespace

/// Rows have no columns for experts: models are known by their names.
Result<void> Reader::readExperts() {
  struct Known {
    const char *word;
    ExpertsConfig experts;
  };
  static const Known known[] = {
      {"Mixtral-8x7B", {8, 2, 14336, 0, false, false, 0, 1, {}}},
      {"Mixtral-8x22B", {8, 2, 16384, 0, false, false, 0, 1, {}}},
      {"30B-A3B", {128, 8, 768, 0, false, false, 0, 1, {}}},
      {"235B-A22B", {128, 8, 1536, 0, false, false, 0, 1, {}}},
      {"DeepSeek-V3", {256, 8, 2048, 2048, false, false, 3, 1, {}}},
  };
  for (const Known &each : known)
    if (says("model_name", each.word))
      out.model.experts = each.experts;
  if (says("model_name", "DeepSeek-V3")) {
    out.model.latent = LatentConfig{1536, 512, 128, 64, 128};
    out.model.headSize = 128 + 64;
  }
  if (says("model_name", "Qwen3"))
    out.model.headSize = 128;
  const bool hasThem = says("model_name", "MoE") || says("model_name", "8x") ||
                       says("model_name", "-A3B") ||
                       says("model_name", "-A22B") ||
                       says("model_name", "DeepSeek") || count("ep", 1) > 1;
  if (hasThem && !out.model.experts)
    return Error{
        fmt::format("experts of model {} are not known", text("model_name"))};
  return {};
}

Result<void> Reader::readModel() {
  ModelConfig &model = out.model;
  model.hidden = count("hidden", 0);
  model.layers = count("layers", 0);
  model.kvHeads = count("kv_heads", count("heads", 0));
  model.queryHeadsPerKvHead = count("heads", 0) / model.kvHeads;
  model.headSize = model.hidden / count("heads", 1);
  model.ffn = count("ffn_hidden", 4 * model.hidden);
  model.vocabulary = count("vocab", 51200);
  if (text("vocab").empty())
    assume("vocabulary 51200");
  model.gatedMlp = false;
  for (const char *family :
       {"Llama", "LLaMA", "Mistral", "Mixtral", "Qwen", "DeepSeek", "Gemma"})
    model.gatedMlp |= says("model_name", family);
  if (!model.gatedMlp) {
    model.norm = NormKind::Layer;
    model.activation = Activation::GeluTanh;
    if (!says("model_name", "Nemotron"))
      model.position = PositionKind::Learned;
  }
  if (isOldMegatron())
    model.dropout = {0.1, 0.1, 0.1};
  model.tiedEmbeddings = says("notes", "tied embeddings");
  out.train.sequenceLength = count("seq_len", 0);
  out.train.globalBatch = count("global_batch", 0);
  return readExperts();
}

/// Rates per device and direction. A name of a device may say more than
/// Devices.cpp knows.
Result<void> Reader::readCluster() {
  Cluster &cluster = out.cluster;
  const std::int64_t devices = count("n_gpus", 1);
  cluster.devicesPerNode = std::min(devices, count("gpus_per_node", 8));
  cluster.nicsPerNode = cluster.devicesPerNode;
  cluster.nodes = devices / cluster.devicesPerNode;
  struct Known {
    const char *word, *device;
    double node, network;
    bool adds;
  };
  static constexpr Known known[] = {
      {"H100-PCIe", "h100-pcie-80gb", 300e9, 50e9, false},
      {"H100", "h100-sxm-80gb", 450e9, 50e9, true},
      {"B200", "b200-sxm-180gb", 900e9, 50e9, true},
      {"H800", "h800-sxm-80gb", 200e9, 50e9, true},
      {"H200", "h200-sxm-141gb", 450e9, 50e9, true},
      {"A100-40", "a100-sxm-40gb", 300e9, 25e9, false},
      {"A100", "a100-sxm-80gb", 300e9, 25e9, false},
      {"A800", "a800-sxm-80gb", 200e9, 25e9, false},
  };
  for (const Known &each : known) {
    if (!says("gpu", each.word))
      continue;
    cluster.device = *deviceByName(each.device);
    double network = each.network;
    // IBM: 400 and 800 Gb/s for a node of 8.
    if (says("notes", "400Gbps per node"))
      network = 6.25e9;
    if (says("notes", "800Gbps per node"))
      network = 12.5e9;
    cluster.links = {{"node", 1, each.node, std::nullopt, 1, each.adds}};
    if (cluster.nodes > 1)
      cluster.links.push_back(
          {"cluster", cluster.nodes, network, std::nullopt, 1, false});
    if (says("gpu", "HBM2e") || says("notes", "Meta H100")) {
      // 500 of 700 W: what lies above 100 W goes with the third power of the
      // clock.
      Device &device = cluster.device;
      device.memoryBytes = std::int64_t{96} << 30;
      device.memoryBytesPerSecond = 2.4e12;
      device.productRatio = device.attentionRatio = device.flash2Ratio = 0.874;
    }
    return {};
  }
  return Error{fmt::format("device {} is not known", text("gpu"))};
}

/// As even as can be; where the row says that the first and last stage have a
/// layer less, so.
void Reader::readStages() {
  PlanPoint &point = out.point;
  point.tp = count("tp", 1);
  point.cp = count("cp", 1);
  point.pp = count("pp", 1);
  point.dp = count("n_gpus", 1) / (point.tp * point.cp * point.pp);
  point.ep = out.model.experts ? count("ep", 1) : 1;
  point.sequenceParallel = point.tp > 1 && text("sp") != "0";
  if (point.cp > 1)
    point.context = PlanContext::Ring;
  point.microBatch = count("micro_batch", 1);
  point.microBatches = out.train.globalBatch / (point.dp * point.microBatch);
  point.chunks = point.pp > 1 ? count("vpp", 1) : 1;
  if (point.pp > 1 && text("vpp").empty()) {
    point.chunks = 4;
    assume("4 chunks");
  }
  if (point.pp > 1)
    point.schedule = point.chunks > 1 ? PlanScheduleKind::Interleaved1F1B
                                      : PlanScheduleKind::OneFOneB;
  if (says("source", "DeepSeek")) {
    // DualPipe, as it is with one copy of the model. Its prediction of one more
    // token is one more layer.
    point.schedule = PlanScheduleKind::DualPipeV;
    point.chunks = 2;
    ++out.model.layers;
  } else if (says("notes", "schedule ZB-1p"))
    point.schedule = PlanScheduleKind::ZbH1;
  else if (says("notes", "schedule ZB-2p"))
    point.schedule = PlanScheduleKind::ZbH2;
  else if (says("notes", "schedule ZB-V") || says("notes", "schedule ZBV")) {
    point.schedule = PlanScheduleKind::ZbV;
    point.chunks = 2;
  }
  const std::int64_t stages = point.pp * point.chunks;
  const bool hasShortEnds = says("notes", "one layer fewer");
  const std::int64_t layers = out.model.layers + (hasShortEnds ? 2 : 0);
  for (std::int64_t stage = 0; stage < stages; ++stage)
    point.layers.push_back(layers / stages + (stage < layers % stages));
  if (hasShortEnds) {
    --point.layers.front();
    --point.layers.back();
  }
}

void Reader::readStates() {
  PlanPoint &point = out.point;
  const bool isFp8 = says("precision", "fp8");
  point.recipe = says("precision", "nvfp4") ? "nvfp4" : isFp8 ? "fp8" : "bf16";
  point.zeroStage = count("zero_stage", 0);
  point.shardGroup = point.zeroStage > 0 ? point.dp * point.cp : 1;
  if (says("notes", "HSDP (shard in node"))
    point.shardGroup = std::min<std::int64_t>(8, point.dp);
  // FSDP: a layer is a unit, gathered one ahead, in every pass; sums in bf16
  // (llm-foundry's PURE) or fp32. Megatron and NeMo: sums of all micro-batches.
  if (point.zeroStage == 3) {
    point.gather = says("notes", "SHARD_GRAD_OP") ? PlanGather::EveryMicroBatch
                                                  : PlanGather::EveryPass;
    point.reduce = PlanReduce::EveryMicroBatch;
    point.prefetch = 1;
    const ModelConfig &model = out.model; // a layer's sums are one
    point.bucketBytes = 4 * model.hidden *
                        (2 * model.hidden + 2 * model.kvHeads * model.headSize +
                         (model.gatedMlp ? 3 : 2) * model.ffn);
  } else {
    point.bucketBytes = std::int64_t{160} << 20; // 40 M elements in fp32
  }
  // NeMo's recipes sum in bf16 (grad_reduce_in_fp32: false), and so does
  // fms-fsdp (policies/mixed_precision.py: bfSixteen); autograd's gradients of
  // one micro-batch are in the format of the parameters.
  const bool sumsInBf16 =
      says("source", "NeMo") || says("source", "IBM") || says("notes", "PURE");
  point.reduceFormat = sumsInBf16 ? "bf16" : "fp32";
  point.gradients = sumsInBf16 || point.zeroStage == 3 ? "bf16" : "fp32";
  point.overlaps = !isOldMegatron();
}

/// Selective is another thing in each software.
void Reader::readRecompute() {
  PlanPoint &point = out.point;
  Practice &practice = out.practice;
  constexpr unsigned whole = AgainNorms | AgainProjections | AgainCore |
                             AgainOutput | AgainUp | AgainActivation |
                             AgainDown;
  // Autograd stops when it has what backward reads (XLA; PyTorch's checkpoint
  // that is not reentrant, from 2.1 on, which is later than llm-foundry's rows
  // in PURE): the last product is not one of it. Megatron's own repeats all.
  if (isMegatron() || says("notes", "PURE"))
    practice.full = whole;
  // "Tensors that will not be used" are freed (arXiv 2407.21783, 3.3.2): what
  // costs no product is not kept. Heddle has no other way to say so.
  const bool freesCheap = says("source", "Llama 3 Herd");
  if (!freesCheap && (text("recompute") == "none" || text("recompute").empty()))
    return;
  bool isFull = text("recompute") == "full";
  double part = 1; // of a place's layers
  if (freesCheap) {
    practice.selective = AgainNorms | AgainActivation;
  } else if (says("notes", "save_qkv_proj")) {
    isFull = true;
    practice.full &= ~AgainProjections;
  } else if (says("notes", "minimal_flash")) {
    practice.selective = AgainNorms | AgainActivation; // all products are kept
  } else if (says("source", "IBM") && number("mfu") > 0) {
    // Whole layers; how many, the two utilizations that are printed say.
    isFull = true;
    part = std::clamp(3 * (number("hfu") / number("mfu") - 1), 0.0, 1.0);
    assume(fmt::format("{:.0f} % of layers computed again", 100 * part));
  } else if (says("notes", "selective layer") ||
             says("notes", "every 2nd layer")) {
    isFull = true;
    part = 0.5;
  } else if (says("source", "torchtitan") || says("source", "torchao")) {
    // "op": every second product, of 7 the 2nd, 4th and 6th: 36 % of a layer's,
    // as the output and down projections are.
    practice.selective = AgainNorms | AgainActivation | AgainOutput | AgainDown;
  } else {
    practice.selective = AgainCore; // Megatron
  }
  point.recompute = isFull ? PointRecompute::Full : PointRecompute::Selective;
  for (std::int64_t rank = 0; rank < point.pp; ++rank)
    point.recomputed.push_back(
        std::llround(part * static_cast<double>(point.layersOf(rank))));
}

/// FSDP2 copies what was gathered into parameters (bf16, 4 bytes) and gradients
/// into a buffer of the sum's format (bf16 to fp32, 6), FSDP1 concatenates
/// gradients and divides them before the sum (4 and 4); its parameters are
/// views of the buffer (torch.distributed.fsdp: _fsdp_collectives.py,
/// _runtime_utils.py).
void Reader::readUnits() {
  Practice &practice = out.practice;
  if (says("source", "torchtitan") || says("source", "torchao")) {
    practice.gatherCopyBytes = 4;
    practice.sumCopyBytes = 6;
    practice.fusesKernels = says("notes", "compile");
  } else if (says("source", "llm-foundry") || says("source", "IBM"))
    practice.sumCopyBytes = 8;
  // Composer's default (distributed/dist_strategy.py: backward_prefetch).
  practice.gathersBetweenUnits = says("source", "llm-foundry");
  if (says("source", "Narayanan") && out.point.zeroStage == 3) {
    // DeepSpeed's of 2021: each parameter for itself (weights and biases of
    // four products, two norms), when it is needed.
    practice.collectivesPerLayer = 12;
    out.point.overlaps = false;
  }
  if (says("source", "DeepSeek")) {
    // Report of DeepSeek-V3 (arXiv 2412.19437), 3.2 and 3.3: tokens go to 4
    // nodes at most, in fp8, and come back in bf16.
    practice.sendsOncePerNode = true;
    practice.nodesPerToken = 4;
    practice.exchangeBytes = 1.5;
  }
  // Transformer Engine casts and transposes in one kernel with a scale that it
  // has from steps before; with the scale of now ("cs") it reads twice.
  // With a scale for each row, an operand is quantized along both its sides,
  // each time with scales that are found first.
  if (says("notes", "rowwise"))
    practice.quantizedBytes = 2 * 7.762;
  if (isNvidia())
    practice.quantizedBytes = says("precision", "cs") ? 6 : 4;
}

void Reader::readPractice() {
  Practice &practice = out.practice;
  const bool isHopper =
      says("gpu", "H100") || says("gpu", "H800") || says("gpu", "H200");
  // Qi et al.: the memory that they print has room for scores.
  if (says("attention_impl", "unfused") || isOldMegatron() ||
      says("source", "Qi et al"))
    practice.attention = AttentionKernel::Whole;
  else if (says("source", "llm-foundry"))
    practice.attention = AttentionKernel::Triton; // submit_benchmarks.py
  else if (isHopper && !isNvidia())
    practice.attention = AttentionKernel::Flash2;
  // Logits cast to fp32 and back: 6 bytes; maximum and sum: 12; gradient: 6.
  practice.lossBytes = 24;
  practice.storesMasks = isOldMegatron();
  practice.gathersInNextStep = true;
  readUnits();
  if (isNvidia())
    practice.tensorOverlap = TensorOverlap::Pieces;
  else if (says("notes", "async TP"))
    practice.tensorOverlap = TensorOverlap::Pieces;
  else if (says("notes", "vanilla TP"))
    practice.tensorOverlap = TensorOverlap::None;
  else
    practice.tensorOverlap = TensorOverlap::Backward;
}

/// Where only TFLOP/s are printed: model FLOPs over them.
void Reader::readTime() {
  // Some print GB and mean 1e9, as their notes say.
  out.peakBytes = number("peak_mem_gib") *
                  (says("notes", "as GB") && !says("notes", "logs GiB")
                       ? 1e9
                       : 1024.0 * 1024 * 1024);
  out.seconds = number("step_time_s");
  if (out.seconds == 0) {
    out.seconds = modelFlopsPerStep(out.model, out.train.globalBatch,
                                    out.train.sequenceLength) /
                  (number("n_gpus") * number("tflops_per_gpu") * 1e12);
    assume("step time from TFLOP/s");
  }
}

Result<Published> Reader::read() {
  out.id = text("row_id");
  out.source = text("source");
  out.name = text("model_name");
  for (const char *column : {"source", "model_name", "gpu", "n_gpus", "seq_len",
                             "global_batch", "precision"})
    out.group += text(column) + "|";
  std::vector<std::string> lacking;
  for (const char *column :
       {"layers", "hidden", "heads", "seq_len", "n_gpus", "tp", "pp",
        "micro_batch", "global_batch", "recompute", "precision"})
    if (text(column).empty())
      lacking.push_back(column);
  const bool isFirst = text("split") == "calibration";
  if (!isFirst && text("vocab").empty())
    lacking.push_back("vocab");
  if (!isFirst && count("pp", 1) > 1 && text("vpp").empty())
    lacking.push_back("vpp");
  if (text("step_time_s").empty() &&
      !(isFirst && !text("tflops_per_gpu").empty()))
    lacking.push_back("step_time_s");
  if (!lacking.empty())
    return Error{fmt::format("the row lacks {}", fmt::join(lacking, ", "))};
  if (Result<void> done = readModel(); !done)
    return done.error();
  if (Result<void> done = readCluster(); !done)
    return done.error();
  readStages();
  readStates();
  readRecompute();
  readPractice();
  readTime();
  return std::move(out);
}

Result<Published> heddle::tool::readPublished(const Row &row) {
  return Reader(row).read();
}
