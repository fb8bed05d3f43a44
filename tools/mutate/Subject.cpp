//===- Subject.cpp - A small model under a plan, after each phase ---------===//

#include "tools/mutate/Subject.h"

#include "passes/Memory/Passes.h"
#include "passes/Planning/WriteTables.h"

#include "heddle/Support/Document.h"

#include "mlir/Pass/PassManager.h"

#include <fmt/format.h>

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

namespace {

struct Description {
  const char *name;
  int64_t dp, tp, microBatches;
  const char *config;
  const char *members = ""; ///< more members of the plan
  DropoutRates dropout = {};
  int64_t pp = 1;
};

// Between them: KV heads fewer than tp, sizes that tp does not divide, tied and
// untied embeddings, biases, LayerNorm, one micro-batch and several, sequences
// whole and cut over tp; storage cut over all of dp and over part of it,
// gathered ahead by one layer and by two, gradients reduced in buckets while
// backward runs; dropout; stages with one chunk and two, in a chain and forth
// and back, in two copies of the model, of different numbers of layers, with a
// table that both ends share; bf16 with a master, reduced in fp32 and in bf16,
// with stages too; values computed again, by layers that differ and in two
// halves of backward.
constexpr const char *kThreeLayers = R"({"model_type": "llama",
      "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4,
      "vocab_size": 24, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false})";
constexpr Description kSubjects[] = {
    {"llama dp 2 tp 4", 2, 4, 2, R"({"model_type": "llama", "hidden_size": 16,
      "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false})"},
    {"llama dp 2 tp 1", 2, 1, 2, R"({"model_type": "llama", "hidden_size": 16,
      "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 8,
      "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 32,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": false})"},
    {"qwen2 ragged dp 2 tp 2", 2, 2, 2, R"({"model_type": "qwen2",
      "hidden_size": 14, "intermediate_size": 21, "num_hidden_layers": 2,
      "num_attention_heads": 7, "num_key_value_heads": 1, "vocab_size": 41,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"gpt2 ragged dp 1 tp 2", 1, 2, 1, R"({"model_type": "gpt2", "n_embd": 12,
      "n_layer": 2, "n_head": 3, "n_inner": 21, "n_positions": 32,
      "vocab_size": 51, "activation_function": "gelu_new",
      "layer_norm_epsilon": 1e-5})"},
    {"qwen3 dp 2 tp 2, sequences cut", 2, 2, 2, R"({"model_type": "qwen3",
      "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6,
      "vocab_size": 48, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false})",
     R"(, "sequence_parallel": true)"},
    {"gpt2 dp 2 tp 2, sequences cut, saved gathered", 2, 2, 1,
     R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4,
      "n_positions": 32, "vocab_size": 51, "activation_function": "gelu_new",
      "layer_norm_epsilon": 1e-5})",
     R"(, "sequence_parallel": true, "save_gathered": true)"},
    {"qwen2 ragged zero 1 dp 2 tp 2, overlap", 2, 2, 2,
     R"({"model_type": "qwen2",
      "hidden_size": 14, "intermediate_size": 21, "num_hidden_layers": 2,
      "num_attention_heads": 7, "num_key_value_heads": 1, "vocab_size": 41,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": true})",
     R"(, "zero": {"stage": 1}, "buckets": {"gradient_bytes": 1024},
      "overlap": {"memory_bytes": 1048576})"},
    {"llama dp 2 tp 2, overlap", 2, 2, 2, kThreeLayers,
     R"(, "buckets": {"gradient_bytes": 1024},
      "overlap": {"memory_bytes": 1048576})"},
    {"llama zero 2 dp 2 tp 2, reduced every micro-batch", 2, 2, 2, kThreeLayers,
     R"(, "zero": {"stage": 2, "reduce": "every_micro_batch"},
      "buckets": {"gradient_bytes": 2048},
      "overlap": {"memory_bytes": 1048576})"},
    {"llama zero 3 dp 2 tp 2, one layer ahead", 2, 2, 2, kThreeLayers,
     R"(, "zero": {"stage": 3, "gather": "every_pass", "prefetch": 1,
        "reduce": "every_micro_batch"},
      "overlap": {"memory_bytes": 1048576})"},
    {"llama zero 3 dp 4 tp 1, two layers ahead", 4, 1, 2, kThreeLayers,
     R"(, "zero": {"stage": 3, "gather": "every_pass", "prefetch": 2},
      "buckets": {"gradient_bytes": 2048},
      "overlap": {"memory_bytes": 1048576})"},
    {"llama hsdp dp 4 in groups of 2", 4, 1, 2, kThreeLayers,
     R"(, "zero": {"stage": 3, "shard_group": 2, "gather": "every_pass",
        "prefetch": 1},
      "overlap": {"memory_bytes": 1048576})"},
    {"qwen3 zero 3 dp 2 tp 2, sequences cut, gathered every micro-batch", 2, 2,
     2, R"({"model_type": "qwen3",
      "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6,
      "vocab_size": 48, "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": false})",
     R"(, "sequence_parallel": true,
      "zero": {"stage": 3, "gather": "every_micro_batch"},
      "overlap": {"memory_bytes": 1048576})"},
    {"gpt2 zero 1 dp 2 tp 2, sequences cut, dropout",
     2,
     2,
     2,
     R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4,
      "n_positions": 32, "vocab_size": 51, "activation_function": "gelu_new",
      "layer_norm_epsilon": 1e-5})",
     R"(, "sequence_parallel": true, "zero": {"stage": 1})",
     {.attention = 0.25, .residual = 0.25, .embedding = 0.25}},
    {"qwen2 ragged stages pp 2 tp 2",
     1,
     2,
     3,
     R"({"model_type": "qwen2",
      "hidden_size": 14, "intermediate_size": 21, "num_hidden_layers": 3,
      "num_attention_heads": 7, "num_key_value_heads": 1, "vocab_size": 41,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": true})",
     R"(, "stages": {"layers": [["0..1"], ["2"]], "embedding": [0, 0],
      "head": [1, 0], "schedule": {"kind": "one_f_one_b"}})",
     {},
     2},
    {"gpt2 stages pp 2 dp 2 tp 2, two chunks, sequences cut, dropout, overlap",
     2,
     2,
     2,
     R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 5, "n_head": 4,
      "n_positions": 32, "vocab_size": 51, "activation_function": "gelu_new",
      "layer_norm_epsilon": 1e-5})",
     R"(, "sequence_parallel": true, "buckets": {"gradient_bytes": 1024},
      "overlap": {"memory_bytes": 1048576}, "stages": {"layers":
      [["0..1", "3"], ["2", "4"]], "embedding": [0, 0], "head": [1, 1],
      "schedule": {"kind": "interleaved_1f1b"}})",
     {.attention = 0.25, .residual = 0.25, .embedding = 0.25},
     2},
    {"llama stages pp 3 dp 2, forth and back, zero 3",
     2,
     1,
     3,
     kThreeLayers,
     R"(, "zero": {"stage": 3, "gather": "every_micro_batch"},
      "stages": {"layers": [["0", ""], ["1", ""], ["", "2"]],
      "embedding": [0, 0], "head": [0, 1], "schedule": {"kind": "zb_v"}})",
     {},
     3},
    {"qwen2 bf16 stages pp 2 dp 2, weight gradients apart, zero 3, a layer "
     "ahead",
     2,
     1,
     2,
     R"({"model_type": "qwen2",
      "hidden_size": 14, "intermediate_size": 21, "num_hidden_layers": 4,
      "num_attention_heads": 7, "num_key_value_heads": 1, "vocab_size": 41,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": true})",
     R"(, "precision": {"recipe": "bf16", "reduce": "bf16"},
      "zero": {"stage": 3, "gather": "every_pass", "prefetch": 1},
      "overlap": {"memory_bytes": 1048576},
      "stages": {"layers": [["0..2"], ["3"]], "embedding": [0, 0],
      "head": [1, 0], "schedule": {"kind": "zb_h1"}})",
     {},
     2},
    {"qwen2 stages pp 2 dp 2, two copies, zero 1, overlap",
     2,
     1,
     4,
     R"({"model_type": "qwen2",
      "hidden_size": 14, "intermediate_size": 21, "num_hidden_layers": 3,
      "num_attention_heads": 7, "num_key_value_heads": 1, "vocab_size": 41,
      "hidden_act": "silu", "max_position_embeddings": 64,
      "rms_norm_eps": 1e-6, "tie_word_embeddings": true})",
     R"(, "zero": {"stage": 1}, "buckets": {"gradient_bytes": 1024},
      "overlap": {"memory_bytes": 1048576}, "stages": {"layers":
      [["0..1", "2"], ["2", "0..1"]], "embedding": [0, 0], "head": [1, 0],
      "schedule": {"kind": "dualpipe"}})",
     {},
     2},
    {"gpt2 dp 2 tp 2, sequences cut, dropout, layers that compute again",
     2,
     2,
     2,
     R"({"model_type": "gpt2", "n_embd": 16, "n_layer": 3, "n_head": 4,
      "n_positions": 32, "vocab_size": 51, "activation_function": "gelu_new",
      "layer_norm_epsilon": 1e-5})",
     R"(, "sequence_parallel": true, "recompute": [
      {"layers": "0", "full": true}, {"layers": "1", "values": ["n2", "m"]}])",
     {.attention = 0.25, .residual = 0.25, .embedding = 0.25}},
    {"llama stages pp 2 tp 2, weight gradients apart, all computed again",
     1,
     2,
     2,
     kThreeLayers,
     R"(, "recompute": "full", "stages": {"layers": [["0..1"], ["2"]],
      "embedding": [0, 0], "head": [1, 0], "schedule": {"kind": "zb_h1"}})",
     {},
     2},
    {"llama bf16 zero 1 dp 2 tp 2, sequences cut, reduced in fp32", 2, 2, 2,
     kThreeLayers,
     R"(, "sequence_parallel": true, "zero": {"stage": 1},
      "precision": {"recipe": "bf16", "gradients": "bf16"},
      "buckets": {"gradient_bytes": 1024},
      "overlap": {"memory_bytes": 1048576})"},
    {"llama bf16 zero 3 dp 4 tp 1, one layer ahead, reduced in bf16", 4, 1, 2,
     kThreeLayers,
     R"(, "precision": {"recipe": "bf16", "reduce": "bf16"},
      "zero": {"stage": 3, "gather": "every_pass", "prefetch": 1,
        "reduce": "every_micro_batch"},
      "overlap": {"memory_bytes": 1048576})"},
};

constexpr int64_t kSequences = 4, kLength = 6; // of a micro-batch, over all dp

Result<Plan> planOf(const ModelConfig &model, int64_t pp, int64_t dp,
                    int64_t tp, int64_t microBatches, const char *members) {
  auto document = Document::parse(
      fmt::format(R"({{"version": 1, "mesh": [["pp", {}], ["dp", {}], ["cp", 1],
        ["tp", {}]], "micro_batch": {}, "micro_batches": {},
        "tensor": "megatron"{}}})",
                  pp, dp, tp, kSequences / dp, microBatches, members),
      "plan.json", Document::Syntax::Json);
  if (!document)
    return document.error();
  return readPlan(*document, &model);
}

Result<ModelConfig> modelOf(const Description &what) {
  auto document =
      Document::parse(what.config, "config.json", Document::Syntax::Json);
  if (!document)
    return document.error();
  Result<ModelConfig> model = readModelConfig(*document);
  if (model)
    model->dropout = what.dropout;
  return model;
}

} // namespace

unsigned Subject::count() { return std::size(kSubjects); }

const char *Subject::nameOf(unsigned index) { return kSubjects[index].name; }

std::unique_ptr<Subject> Subject::create(MLIRContext &context, unsigned index,
                                         std::string &error) {
  const Description &what = kSubjects[index];
  auto subject = std::make_unique<Subject>();
  subject->title = what.name;
  Result<ModelConfig> model = modelOf(what);
  if (!model)
    return error = model.message(), nullptr;
  subject->model = std::move(*model);
  subject->train.sequenceLength = kLength;
  subject->train.globalBatch = kSequences * what.microBatches;
  // An update in proportion to the gradient: Adam hides constant factors.
  subject->train.optimizer.kind = OptimizerKind::Sgd;
  Result<Plan> plan = planOf(subject->model, what.pp, what.dp, what.tp,
                             what.microBatches, what.members);
  Result<Plan> one = planOf(subject->model, 1, 1, 1, what.microBatches, "");
  if (!plan || !one)
    return error = (plan ? one : plan).message(), nullptr;
  subject->plan = std::move(*plan);
  one->precision = subject->plan.precision;

  auto reference =
      compileUpTo(context, {subject->model, subject->train, *one},
                  Phase::Memory, [&](Phase phase, ModuleOp module) {
                    if (phase == Phase::Autodiff)
                      subject->oneDevice =
                          OwningOpRef<ModuleOp>(module.clone());
                  });
  auto compiled =
      compileUpTo(context, {subject->model, subject->train, subject->plan},
                  Phase::Memory, [&](Phase phase, ModuleOp module) {
                    subject->modules[phase] =
                        OwningOpRef<ModuleOp>(module.clone());
                  });
  if (failed(reference) || failed(compiled))
    return error = subject->title + " does not compile", nullptr;
  subject->oneProgram = std::move(*reference);
  return subject;
}

OwningOpRef<ModuleOp> Subject::copyAfter(Phase phase) const {
  OwningOpRef<ModuleOp> module(modules.find(phase)->second.get().clone());
  return module;
}

LogicalResult Subject::place(ModuleOp module) const {
  PassManager passes(module.getContext());
  passes.addPass(createPlaceBuffersPass());
  if (failed(passes.run(module)))
    return failure();
  return writeTables(module, plan, model, train);
}
