//===- SmallLlama.h - A model that is worked by hand ------------*- C++ -*-===//

#ifndef HEDDLE_TEST_LIB_COST_SMALLLLAMA_H
#define HEDDLE_TEST_LIB_COST_SMALLLLAMA_H

#include "test/TestPlan.h"

namespace heddle::test {

/// One layer; d 8, 2 KV heads with 2 query heads each of size 2, f 12, v 16.
inline ModelConfig smallLlama() {
  ModelConfig model;
  model.hidden = 8;
  model.layers = 1;
  model.kvHeads = 2;
  model.queryHeadsPerKvHead = 2;
  model.headSize = 2;
  model.ffn = 12;
  model.vocabulary = 16;
  model.maxPositions = 64;
  return model;
}

inline TrainSettings settings(std::int64_t sequenceLength,
                              std::int64_t globalBatch) {
  TrainSettings train;
  train.sequenceLength = sequenceLength;
  train.globalBatch = globalBatch;
  train.optimizer.kind = OptimizerKind::Sgd;
  return train;
}

} // namespace heddle::test

#endif // HEDDLE_TEST_LIB_COST_SMALLLLAMA_H
