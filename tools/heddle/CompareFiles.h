//===- CompareFiles.h - Two files of tensors, one by one --------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_COMPAREFILES_H
#define HEDDLE_TOOLS_COMPAREFILES_H

#include "heddle/Support/Safetensors.h"
#include "passes/Interpret/Compare.h"

#include <set>
#include <string>
#include <vector>

namespace heddle::tool {

/// Which tensors of two files are compared, and how they are called.
enum class TensorKind { Parameter, Gradient };

/// Differences of all tensors of one kind that the reference has, worst first.
/// Files stay mapped: no tensor is held as a whole. An error where the
/// candidate lacks one or has another shape.
Result<std::vector<interpret::Difference>>
compareFiles(const SafetensorsFile &reference, const SafetensorsFile &candidate,
             TensorKind kind);

/// Names of tensors of one kind whose norm in `file` is at most `part` of the
/// norm of all: what is left of a gradient that is zero in truth.
std::set<std::string> findNegligible(const SafetensorsFile &file,
                                     TensorKind kind, double part);

/// The scalar `name` of a dump: loss, gradient_norm, counted_labels.
Result<double> readScalar(const SafetensorsFile &file, const std::string &name);

} // namespace heddle::tool

#endif
