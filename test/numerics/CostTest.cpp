//===- CostTest.cpp - closed formulas against programs --------------------===//
//
// lib/Cost computes from model, settings and plan; it never saw a program. Here
// its figures meet those counted in programs: operations and collectives in the
// per-rank tensors and again in rt, live bytes in the Memory pass's report.
//
//===----------------------------------------------------------------------===//

#include "dialects/Dist/Dist.h"
#include "dialects/Rt/Rt.h"
#include "dialects/Transformer/Transformer.h"
#include "heddle/Cost/Flops.h"
#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"
#include "heddle/Plan/PlanLayout.h"
#include "passes/Memory/MemoryReport.h"
#include "passes/Pipelines/Pipelines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

using namespace heddle;

namespace {

struct Model {
  const char *name;
  const char *config;
};

// Sizes that 2, 4 and 8 divide, and ones that they do not.
const Model kModels[] = {
    {"llama", R"({"model_type": "llama", "hidden_size": 16,
      "intermediate_size": 24, "num_hidden_layers": 3,
      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4,
      "vocab_size": 32, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false})"},
    {"llama_ragged_biases", R"({"model_type": "llama", "hidden_size": 12,
      "intermediate_size": 19, "num_hidden_layers": 2,
      "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 4,
      "vocab_size": 37, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
      "attention_bias": true, "mlp_bias": true})"},
    {"mistral", R"({"model_type": "mistral", "hidden_size": 16,
      "intermediate_size": 40, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
      "vocab_size": 48, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "sliding_window": 4,
      "tie_word_embeddings": false})"},
    {"qwen2", R"({"model_type": "qwen2", "hidden_size": 14,
      "intermediate_size": 21, "num_hidden_layers": 2,
      "num_attention_heads": 7, "num_key_value_heads": 1, "vocab_size": 41,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"qwen3", R"({"model_type": "qwen3", "hidden_size": 12,
      "intermediate_size": 20, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6,
      "vocab_size": 48, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false})"},
    {"gpt2", R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2,
      "n_head": 4, "n_positions": 128, "vocab_size": 50,
      "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})"},
};

struct Shape {
  int64_t dp, tp, microBatch, microBatches, sequence;
  OptimizerKind optimizer;
};

const Shape kShapes[] = {
    {1, 1, 2, 1, 8, OptimizerKind::Sgd},
    {1, 1, 1, 3, 8, OptimizerKind::AdamW},
    {2, 2, 1, 2, 8, OptimizerKind::AdamW},
    {4, 1, 2, 2, 12, OptimizerKind::AdamW},
    {1, 4, 3, 2, 8, OptimizerKind::Sgd},
    {2, 4, 1, 1, 16, OptimizerKind::AdamW},
    {3, 2, 1, 2, 8, OptimizerKind::Sgd},
    {1, 8, 2, 2, 70, OptimizerKind::AdamW},
};

/// What a program does, counted by walking it.
struct Counted {
  double products = 0, attention = 0;
  std::map<AxisList, AxisTraffic> traffic;
};

AxisList axesOf(mlir::ArrayAttr axes) {
  AxisList names;
  for (mlir::Attribute axis : axes)
    names.push_back(mlir::cast<mlir::StringAttr>(axis).getValue().str());
  return names;
}

/// \p rounds: 2 for an all-reduce, 1 for gathering or scattering; \p bytes of
/// the whole tensor.
void addCollective(Counted &counted, mlir::ArrayAttr axes, int64_t ranks,
                   int64_t bytes, double times, double rounds) {
  double n = static_cast<double>(ranks);
  AxisTraffic &entry = counted.traffic[axesOf(axes)];
  entry.calls += static_cast<int64_t>(times);
  entry.bytes += times * rounds * (n - 1) / n * static_cast<double>(bytes);
}

/// Counts in the per-rank program on tensors.
class TensorCounter {
public:
  explicit TensorCounter(mlir::ModuleOp module) : symbols(module) {
    visit(bodyOf("step"), 1);
  }
  Counted counted;

private:
  mlir::Block &bodyOf(llvm::StringRef name) {
    return symbols.lookup<mlir::func::FuncOp>(name).getBody().front();
  }

  void visit(mlir::Block &block, double times) {
    for (mlir::Operation &op : block) {
      if (auto loop = mlir::dyn_cast<transformer::LoopOp>(op))
        visit(loop.getBody().front(),
              times * static_cast<double>(loop.getCount()));
      else if (auto call = mlir::dyn_cast<mlir::func::CallOp>(op))
        visit(bodyOf(call.getCallee()), times);
      else if (auto cost = mlir::dyn_cast<dist::CostOpInterface>(op))
        (mlir::isa<transformer::ContractOp>(op) ? counted.products
                                                : counted.attention) +=
            times * static_cast<double>(cost.getFlops());
      else if (mlir::isa<dist::DistDialect>(op.getDialect()) &&
               !mlir::isa<dist::SliceOp, dist::MakePartialOp>(op))
        visitCollective(op, times);
    }
  }

  void visitCollective(mlir::Operation &op, double times) {
    bool gathers = mlir::isa<dist::AllGatherOp>(op),
         reduces = mlir::isa<dist::AllReduceOp>(op);
    ASSERT_TRUE(gathers || reduces || mlir::isa<dist::ReduceScatterOp>(op))
        << "no formula for " << op.getName().getStringRef().str();
    auto whole = mlir::cast<mlir::RankedTensorType>(
        gathers ? op.getResult(0).getType() : op.getOperand(0).getType());
    auto axes = op.getAttrOfType<mlir::ArrayAttr>("axes");
    addCollective(counted, axes,
                  op.getAttrOfType<dist::MeshAttr>("mesh").getGroupSize(axes),
                  whole.getNumElements() * (whole.getElementTypeBitWidth() / 8),
                  times, reduces ? 2 : 1);
  }

  mlir::SymbolTable symbols;
};

/// Counts in the rt program, from the sizes that the runtime is called with.
class RuntimeCounter {
public:
  explicit RuntimeCounter(mlir::ModuleOp module)
      : program(*module.getOps<rt::ProgramOp>().begin()), symbols(program) {
    visit(bodyOf(program.getEntry()), 1);
  }
  Counted counted;

private:
  mlir::Block &bodyOf(llvm::StringRef name) {
    return symbols.lookup<rt::FuncOp>(name).getBody().front();
  }

  void visit(mlir::Block &block, double times) {
    for (mlir::Operation &op : block) {
      if (auto loop = mlir::dyn_cast<rt::ForOp>(op))
        visit(loop.getBody().front(),
              times * static_cast<double>(loop.getUpper() - loop.getLower()));
      else if (auto call = mlir::dyn_cast<rt::CallOp>(op))
        visit(bodyOf(call.getCallee()), times);
      else if (auto gemm = mlir::dyn_cast<rt::GemmOp>(op))
        counted.products += times * 2 * static_cast<double>(gemm.getM()) *
                            static_cast<double>(gemm.getN()) *
                            static_cast<double>(gemm.getK()) *
                            static_cast<double>(gemm.getBatch());
      else if (auto forward = mlir::dyn_cast<rt::AttentionOp>(op))
        counted.attention +=
            times * 2 * products(forward.getQ(), forward.getWindow());
      else if (auto backward = mlir::dyn_cast<rt::AttentionGradOp>(op))
        counted.attention +=
            times * 5 * products(backward.getQ(), backward.getWindow());
      else
        visitCollective(op, times);
    }
  }

  /// Operations of one matrix product over all pairs that see each other.
  static double products(mlir::Value queries, int64_t window) {
    auto shape = mlir::cast<rt::BufType>(queries.getType()).getShape();
    int64_t pairs = 0;
    for (int64_t query = 0; query < shape[1]; ++query)
      pairs += window > 0 ? std::min(query + 1, window) : query + 1;
    return 2 * static_cast<double>(pairs) *
           static_cast<double>(shape[0] * shape[2] * shape[3] * shape[4]);
  }

  void visitCollective(mlir::Operation &op, double times) {
    bool isOther = mlir::isa<rt::AllToAllOp, rt::PermuteOp>(op);
    ASSERT_FALSE(isOther) << "no formula for "
                          << op.getName().getStringRef().str();
    if (auto reduce = mlir::dyn_cast<rt::AllReduceOp>(op))
      add(reduce.getAxes(), reduce.getInput(), times, 2);
    if (auto scatter = mlir::dyn_cast<rt::ReduceScatterOp>(op))
      add(scatter.getAxes(), scatter.getInput(), times, 1);
    if (auto gather = mlir::dyn_cast<rt::AllGatherOp>(op))
      add(gather.getAxes(), gather.getOutput(), times, 1);
  }

  void add(mlir::ArrayAttr axes, mlir::Value whole, double times,
           double rounds) {
    int64_t ranks = 1;
    for (mlir::Attribute attribute : program.getMesh())
      for (mlir::Attribute name : axes)
        if (auto axis = mlir::cast<rt::AxisAttr>(attribute);
            axis.getName() == mlir::cast<mlir::StringAttr>(name).getValue())
          ranks *= axis.getSize();
    addCollective(counted, axes, ranks,
                  mlir::cast<rt::BufType>(whole.getType()).getSpanBytes(),
                  times, rounds);
  }

  rt::ProgramOp program;
  mlir::SymbolTable symbols;
};

template <class T>
T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.message();
    std::abort();
  }
  return std::move(*result);
}

ModelConfig modelOf(const char *config) {
  ModelConfig model = must(readModelConfig(
      must(Document::parse(config, "config.json", Document::Syntax::Json))));
  model.dropout = {};
  return model;
}

TrainSettings settingsOf(const Shape &shape) {
  TrainSettings train;
  train.sequenceLength = shape.sequence;
  train.globalBatch = shape.dp * shape.microBatch * shape.microBatches;
  train.optimizer.kind = shape.optimizer;
  return train;
}

Plan planOf(const ModelConfig &model, const Shape &shape,
            const std::string &tensor = "\"megatron\"",
            const std::string &sequences = "") {
  std::string text = fmt::format(
      R"({{"version": 1, "mesh": [["pp", 1], ["dp", {}], ["cp", 1], ["tp", {}]],
          "micro_batch": {}, "micro_batches": {}, "tensor": {}{}}})",
      shape.dp, shape.tp, shape.microBatch, shape.microBatches, tensor,
      sequences);
  return must(
      readPlan(must(Document::parse(text, "plan.json", Document::Syntax::Json)),
               &model));
}

void expectEqual(const std::map<AxisList, AxisTraffic> &formula,
                 const std::map<AxisList, AxisTraffic> &counted) {
  std::map<AxisList, AxisTraffic> all = counted;
  all.insert(formula.begin(), formula.end());
  for (const auto &[axes, unused] : all) {
    std::string name;
    for (const std::string &axis : axes)
      name += axis + " ";
    ASSERT_TRUE(formula.count(axes)) << "only the program sends over " << name;
    ASSERT_TRUE(counted.count(axes)) << "only the formula sends over " << name;
    EXPECT_EQ(formula.at(axes).calls, counted.at(axes).calls) << name;
    // Fractions like 2/3 are rounded in another order.
    EXPECT_NEAR(formula.at(axes).bytes / counted.at(axes).bytes, 1, 1e-12)
        << name;
  }
}

void checkMemory(const LiveMemory &formula, const MemoryReport &report) {
  std::map<std::string, int64_t> counted;
  for (const MemoryObject &object : report.objects)
    counted[object.memoryClass] += object.bytes;
  EXPECT_EQ(formula.parameters, counted["parameters"]);
  EXPECT_EQ(formula.gradients, counted["gradients"]);
  EXPECT_EQ(formula.optimizer, counted["optimizer"]);
  EXPECT_EQ(formula.inputs, counted["inputs"]);
  EXPECT_EQ(formula.outputs, counted["outputs"]);
  EXPECT_EQ(formula.saved, counted["saved"]);
  EXPECT_EQ(formula.peak().function, report.peakFunction);
  EXPECT_EQ(formula.peakBytes(), report.livePeakBytes)
      << formula.peak().function << ": " << formula.peak().moment
      << ", the program: " << report.peakFunction << ": " << report.peakOp;
}

void checkProgram(const ModelConfig &model, const TrainSettings &train,
                  const Plan &plan) {
  RankSizes sizes = must(rankSizes(model, train, plan));
  FlopCount flops = stepFlops(model, sizes);
  std::map<AxisList, AxisTraffic> traffic =
      trafficByAxes(stepCollectives(sizes));
  auto check = [&](const Counted &counted) {
    EXPECT_EQ(flops.products, counted.products);
    EXPECT_EQ(flops.attention, counted.attention);
    expectEqual(traffic, counted.traffic);
  };
  mlir::MLIRContext context;
  context.disableMultithreading();
  auto observe = [&](Phase phase, mlir::ModuleOp module) {
    SCOPED_TRACE(phaseName(phase));
    if (phase == Phase::Collectives)
      check(TensorCounter(module).counted);
    if (phase != Phase::Memory)
      return;
    check(RuntimeCounter(module).counted);
    checkMemory(liveMemory(model, train, sizes), getMemoryReport(module));
  };
  EXPECT_TRUE(succeeded(compileUpTo(context, CompileInput{model, train, plan},
                                    Phase::Memory, observe)));
}

constexpr const char *kCut = R"(, "sequence_parallel": true)";
constexpr const char *kGathered =
    R"(, "sequence_parallel": true, "save_gathered": true)";

/// Whether the formulas know sequences cut over tp: KV heads are split too
/// where there are fewer than ranks.
bool knowsCut(const ModelConfig &model, const Shape &shape) {
  HeadSplit heads =
      splitHeads(model.kvHeads, model.queryHeadsPerKvHead, shape.tp);
  return heads.kv > 1 || heads.copy == 1;
}

class CostOfModel : public testing::TestWithParam<Model> {};

void checkShapes(const ModelConfig &model) {
  for (const Shape &shape : kShapes) {
    SCOPED_TRACE(fmt::format("dp {} tp {} micro-batches {} x {}", shape.dp,
                             shape.tp, shape.microBatches, shape.microBatch));
    checkProgram(model, settingsOf(shape), planOf(model, shape));
    if (knowsCut(model, shape))
      for (const char *sequences : {kCut, kGathered}) {
        SCOPED_TRACE(sequences);
        checkProgram(model, settingsOf(shape),
                     planOf(model, shape, "\"megatron\"", sequences));
      }
  }
}

TEST_P(CostOfModel, EqualsTheProgram) {
  checkShapes(modelOf(GetParam().config));
}

// Masks take nothing, but what dropout reads is an input, and the gradients
// before and behind it are two.
TEST_P(CostOfModel, EqualsTheProgramWithDropout) {
  ModelConfig model = modelOf(GetParam().config);
  for (DropoutRates rates :
       {DropoutRates{0.1, 0, 0.1}, DropoutRates{0, 0.1, 0}}) {
    SCOPED_TRACE(fmt::format("dropout {} {} {}", rates.attention,
                             rates.residual, rates.embedding));
    model.dropout = rates;
    checkShapes(model);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CostOfModel, testing::ValuesIn(kModels),
                         [](const auto &info) { return info.param.name; });

/// A model and a plan drawn by a seed: sizes that divide and that do not, heads
/// larger than the rest, and parts that the plan leaves whole.
struct Drawn {
  ModelConfig model;
  Shape shape;
  std::string tensor;    ///< of the plan
  std::string sequences; ///< the same, where they are cut

  explicit Drawn(unsigned seed) : random(seed) {
    model = modelOf(kModels[seed % std::size(kModels)].config);
    model.hidden = draw(1, 40);
    model.ffn = draw(1, 80);
    model.vocabulary = draw(4, 90);
    model.layers = draw(1, 4);
    model.kvHeads = draw(1, 6);
    model.queryHeadsPerKvHead = model.family == Family::Gpt2 ? 1 : draw(1, 5);
    model.headSize = 2 * draw(1, 12);
    for (double *rate : {&model.dropout.attention, &model.dropout.residual,
                         &model.dropout.embedding})
      *rate = draw(0, 2) == 0 ? 0.5 : 0;
    shape = {
        draw(1, 3),  draw(1, 8),
        draw(1, 3),  draw(1, 3),
        draw(1, 90), draw(0, 1) ? OptimizerKind::Sgd : OptimizerKind::AdamW};
    tensor = rules();
    if (seed % 3 == 0)
      return;
    if (!knowsCut(model, shape))
      return;
    tensor = "\"megatron\"";
    sequences = seed % 3 == 1 ? kCut : kGathered;
  }

private:
  int64_t draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  }

  std::string rules() {
    std::string text;
    for (const PlanRule &rule : megatronRules(model))
      text += fmt::format(
          R"({{"match": "{}", "split": {{{}}}}}, )", rule.match,
          rule.split.empty()
              ? ""
              : fmt::format(R"("{}": ["tp"])", rule.split.begin()->first));
    for (const char *part : {"*attn*", "*mlp*", "*embed*", "*wte*", "lm_head*"})
      if (draw(0, 3) == 0)
        text += fmt::format(R"({{"match": "{}", "split": {{}}}}, )", part);
    text.resize(text.size() - 2);
    return fmt::format(R"({{"parameters": [{}], "saved": [], "values": [
          {{"match": "block.x", "split": {{"b": ["dp"]}}}},
          {{"match": "block.delta", "split": {{"b": ["dp"]}}}}]}})",
                       text);
  }

  std::mt19937 random;
};

TEST(CostOfProgram, EqualsDrawnModels) {
  for (unsigned seed = 0; seed < 180; ++seed) {
    Drawn drawn(seed);
    SCOPED_TRACE(fmt::format(
        "seed {} dp {} tp {} s {} m {} x {}: d {} f {} v {} g {} r {} k {}\n{}",
        seed, drawn.shape.dp, drawn.shape.tp, drawn.shape.sequence,
        drawn.shape.microBatches, drawn.shape.microBatch, drawn.model.hidden,
        drawn.model.ffn, drawn.model.vocabulary, drawn.model.kvHeads,
        drawn.model.queryHeadsPerKvHead, drawn.model.headSize,
        drawn.tensor + drawn.sequences));
    checkProgram(
        drawn.model, settingsOf(drawn.shape),
        planOf(drawn.model, drawn.shape, drawn.tensor, drawn.sequences));
    if (testing::Test::HasFailure())
      return;
  }
}

TEST(CostOfProgram, EqualsLlama405B) {
  const std::filesystem::path root = HEDDLE_SOURCE_DIR;
  ModelConfig model =
      must(readModelConfig(root / "test/cases/hf_configs/llama-3.1-405b.json"));
  TrainSettings train =
      must(readTrainSettings(root / "tools/examples/train/llama3-405b.yaml"));
  Plan plan = must(readPlan(
      root / "tools/examples/plans/llama-3.1-405b-tp8-dp1024.json", &model));
  checkProgram(model, train, plan);
  for (PlanRule &rule : plan.tensor.values)
    rule.split["s"] = {"tp"};
  checkProgram(model, train, plan);
}

} // namespace
