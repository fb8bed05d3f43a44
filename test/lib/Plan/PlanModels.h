// Models and settings that the tests of plans share.

#ifndef HEDDLE_TEST_LIB_PLAN_PLANMODELS_H
#define HEDDLE_TEST_LIB_PLAN_PLANMODELS_H

#include "heddle/Model/ModelConfig.h"
#include "heddle/Model/TrainSettings.h"

namespace heddle::test {

inline ModelConfig llama(std::int64_t layers, std::int64_t hidden,
                         std::int64_t kvHeads, std::int64_t queryHeads,
                         std::int64_t headSize, std::int64_t ffn,
                         std::int64_t vocabulary) {
  ModelConfig model;
  model.layers = layers;
  model.hidden = hidden;
  model.kvHeads = kvHeads;
  model.queryHeadsPerKvHead = queryHeads / kvHeads;
  model.headSize = headSize;
  model.ffn = ffn;
  model.vocabulary = vocabulary;
  model.maxPositions = 1024;
  return model;
}

inline ModelConfig llama10m() { return llama(6, 384, 4, 12, 32, 1024, 256); }
inline ModelConfig llama405b() {
  return llama(126, 16384, 8, 128, 128, 53248, 128256);
}
inline ModelConfig gpt2() {
  ModelConfig model = llama(12, 768, 12, 12, 64, 3072, 50257);
  model.family = Family::Gpt2;
  model.norm = NormKind::Layer;
  model.activation = Activation::GeluTanh;
  model.gatedMlp = false;
  model.fusedQkv = model.qkvBias = model.outputBias = model.mlpBias = true;
  model.tiedEmbeddings = true;
  model.position = PositionKind::Learned;
  return model;
}

inline TrainSettings batchOf(std::int64_t sequences) {
  TrainSettings train;
  train.sequenceLength = 32;
  train.globalBatch = sequences;
  train.optimizer.lr = 1e-3;
  return train;
}

} // namespace heddle::test

#endif // HEDDLE_TEST_LIB_PLAN_PLANMODELS_H
