#include "tools/heddle/CompareFiles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace heddle;
using namespace heddle::tool;
using interpret::Difference;

static constexpr std::string_view kGradient = "gradient.";

/// The parameter's name where the tensor is of the kind.
static std::optional<std::string> nameOf(const TensorEntry &entry,
                                         TensorKind kind) {
  // Scalars of a dump are neither.
  if (entry.shape.empty() || entry.type != TensorType::F32)
    return std::nullopt;
  bool isGradient = entry.name.starts_with(kGradient);
  if (isGradient != (kind == TensorKind::Gradient))
    return std::nullopt;
  return isGradient ? entry.name.substr(kGradient.size()) : entry.name;
}

static std::span<const float> floatsOf(const SafetensorsFile &file,
                                       const TensorEntry &entry) {
  std::span<const std::byte> bytes = file.bytes(entry);
  // The writers align each tensor to its elements.
  return {reinterpret_cast<const float *>(bytes.data()),
          bytes.size() / sizeof(float)};
}

static double sumOfSquares(std::span<const float> values) {
  double sum = 0;
  for (float value : values)
    sum += double(value) * value;
  return sum;
}

static double normOfAll(const SafetensorsFile &file, TensorKind kind) {
  double sum = 0;
  for (const TensorEntry &entry : file.tensors())
    if (nameOf(entry, kind))
      sum += sumOfSquares(floatsOf(file, entry));
  return std::sqrt(sum);
}

/// One pass over both tensors; `norm` is that of all.
static Difference measure(std::string name, std::span<const float> reference,
                          std::span<const float> candidate, double norm) {
  Difference result;
  result.name = std::move(name);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    double difference = std::fabs(double(candidate[i]) - reference[i]);
    sum += difference * difference;
    squares += double(reference[i]) * reference[i];
    // Not std::max: it would drop a difference that is not a number.
    if (!(difference <= result.largest))
      result.largest = difference;
  }
  double scale = std::max(std::sqrt(squares), 1e-6 * norm);
  result.relative = sum == 0 ? 0 : std::sqrt(sum) / scale;
  return result;
}

Result<std::vector<Difference>>
tool::compareFiles(const SafetensorsFile &reference,
                   const SafetensorsFile &candidate, TensorKind kind) {
  double norm = normOfAll(reference, kind);
  std::vector<Difference> differences;
  for (const TensorEntry &entry : reference.tensors()) {
    std::optional<std::string> name = nameOf(entry, kind);
    if (!name)
      continue;
    const TensorEntry *other = candidate.find(entry.name);
    if (!other || other->type != entry.type || other->shape != entry.shape)
      return Error{fmt::format(
          "{}: {}: found {}, expected shape [{}] as on one "
          "device",
          candidate.path(), entry.name,
          other ? fmt::format("[{}]", fmt::join(other->shape, ", ")) : "none",
          fmt::join(entry.shape, ", "))};
    differences.push_back(measure(*name, floatsOf(reference, entry),
                                  floatsOf(candidate, *other), norm));
  }
  std::stable_sort(differences.begin(), differences.end(),
                   [](const Difference &a, const Difference &b) {
                     if (std::isnan(a.relative) || std::isnan(b.relative))
                       return std::isnan(a.relative) && !std::isnan(b.relative);
                     return a.relative > b.relative;
                   });
  return differences;
}

std::set<std::string> tool::findNegligible(const SafetensorsFile &file,
                                           TensorKind kind, double part) {
  double norm = normOfAll(file, kind);
  std::set<std::string> names;
  for (const TensorEntry &entry : file.tensors())
    if (auto name = nameOf(entry, kind))
      if (std::sqrt(sumOfSquares(floatsOf(file, entry))) <= part * norm)
        names.insert(*name);
  return names;
}

template <class T>
static double readAs(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return double(value);
}

Result<double> tool::readScalar(const SafetensorsFile &file,
                                const std::string &name) {
  const TensorEntry *entry = file.find(name);
  if (entry && entry->elements() == 1 && entry->type == TensorType::F32)
    return readAs<float>(file.bytes(*entry));
  if (entry && entry->elements() == 1 && entry->type == TensorType::I64)
    return readAs<int64_t>(file.bytes(*entry));
  return Error{fmt::format("{}: there is no number {}", file.path(), name)};
}
