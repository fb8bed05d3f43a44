//===- Skeletons.h - The skeletons of the compiler that reads this --------===//

#ifndef HEDDLE_RUNTIME_SKELETONS_H
#define HEDDLE_RUNTIME_SKELETONS_H

// A host compiler takes CUDA's too, against a double of the CUDA runtime.
#if defined(__CUDACC__) || defined(HEDDLE_CUDA_SKELETONS)
#include "heddle/Runtime/SegmentsCuda.h"
#include "heddle/Runtime/SkeletonsCuda.h"
#else
#include "heddle/Runtime/SegmentsHost.h"
#include "heddle/Runtime/SkeletonsHost.h"
#endif

#endif
