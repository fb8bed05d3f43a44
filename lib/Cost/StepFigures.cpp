#include "heddle/Cost/StepTime.h"

using namespace heddle;

static double real(std::int64_t value) { return static_cast<double>(value); }

ComputeSeconds &ComputeSeconds::operator+=(const ComputeSeconds &other) {
  products += other.products;
  attention += other.attention;
  memory += other.memory;
  return *this;
}

ComputeSeconds ComputeSeconds::operator*(double times) const {
  return {products * times, attention * times, memory * times};
}

std::string_view heddle::timeAxisName(TimeAxis axis) {
  static constexpr std::string_view names[] = {"tp", "cp", "ep", "dp", "pp"};
  return names[static_cast<std::size_t>(axis)];
}

double StepTime::mfu() const {
  return modelFlops / (seconds * peakFlops * real(ranks));
}

double StepTime::hfu() const {
  return hardwareFlops / (seconds * peakFlops * real(ranks));
}

double StepTime::tokensPerSecondPerDevice() const {
  return tokens / (seconds * real(ranks));
}
