//===- Skeletons.h - The skeletons of the compiler that reads this --------===//

#ifndef HEDDLE_RUNTIME_SKELETONS_H
#define HEDDLE_RUNTIME_SKELETONS_H

#ifdef __CUDACC__
#include "heddle/Runtime/SegmentsCuda.h"
#include "heddle/Runtime/SkeletonsCuda.h"
#else
#include "heddle/Runtime/SegmentsHost.h"
#include "heddle/Runtime/SkeletonsHost.h"
#endif

#endif
