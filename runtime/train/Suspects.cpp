#include "runtime/train/Suspects.h"

#include "runtime/common/Status.h"
#include "runtime/ranks/Inspect.h"
#include "runtime/train/States.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace heddle::train {

using ranks::Integrity;
using runtime::State;

namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

/// Calls `use(state, instance, position, extents)` for what the rank stores.
heddle_rt_status forEachInstance(
    Rank &rank,
    const std::function<heddle_rt_status(const State &, int64_t, int64_t,
                                         const Extents &)> &use) {
  for (const State &state : rank.tables.states) {
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    int64_t i = 0;
    for (int64_t layer : rank.tables.instancesAt(state, rank.stage))
      HEDDLE_RT_TRY(use(state, layer, i++, extents));
  }
  return HEDDLE_RT_OK;
}

bool isLookedAt(const State &state) {
  // Gradients of a step that failed are no cause.
  return state.kind != "gradient" &&
         (state.dtype == HEDDLE_RT_F32 || state.dtype == HEDDLE_RT_BF16 ||
          state.dtype == HEDDLE_RT_F16);
}

/// The first value of the rank's states that is no number.
heddle_rt_status scanStates(Rank &rank, std::string &text) {
  std::vector<float> values;
  return forEachInstance(rank, [&](const State &state, int64_t layer, int64_t i,
                                   const Extents &extents) {
    if (!text.empty() || !isLookedAt(state))
      return HEDDLE_RT_OK;
    HEDDLE_RT_TRY(downloadStored(rank, state, i, extents, values));
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](float v) { return !std::isfinite(v); });
    if (bad != values.end())
      text = fmt::format("{} {} has the value {} (element {} of what the rank "
                         "stores)",
                         state.kind, state.instanceName(layer), *bad,
                         bad - values.begin());
    return HEDDLE_RT_OK;
  });
}

} // namespace

std::string tensorAt(Rank &rank, const void *address) {
  std::string text;
  (void)forEachInstance(rank, [&](const State &state, int64_t layer, int64_t i,
                                  const Extents &extents) {
    const char *begin =
        rank.addressOf(instancePlace(state, i, extents, rank.stage));
    const auto offset = static_cast<const char *>(address) - begin;
    const int64_t size = bytesOf(state.dtype);
    if (text.empty() && offset >= 0 && offset < extents.storedElements() * size)
      text = fmt::format("{} {}, element {} of what the rank stores",
                         state.kind, state.instanceName(layer), offset / size);
    return HEDDLE_RT_OK;
  });
  return text;
}

namespace {

std::string tell(Rank &rank, const Integrity::Element &found) {
  const std::string tensor = tensorAt(rank, found.at);
  return fmt::format("it gave the value {:g} to {}, reduction {} of the step: "
                     "{}",
                     found.value, found.name, found.number,
                     tensor.empty() ? fmt::format("element {}", found.element)
                                    : tensor);
}

/// Shares the sentence of the rank with the least order; "" where none has one.
heddle_rt_status nameFirst(Rank &rank, int64_t order, std::string own,
                           std::string &text) {
  std::vector<int64_t> all;
  HEDDLE_RT_TRY(rank.gather({order}, all));
  const auto first = std::min_element(all.begin(), all.end());
  text.clear();
  if (*first == kNone)
    return HEDDLE_RT_OK;
  const int64_t blamed = first - all.begin();
  HEDDLE_RT_TRY(rank.shareText(blamed, own));
  text = fmt::format("rank {}: {}", blamed, own);
  for (size_t r = 0; r < all.size(); ++r)
    if (int64_t(r) != blamed && all[r] == *first)
      text += fmt::format("; also rank {}", r);
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status findNoNumber(Rank &rank, std::string &text) {
  const Integrity &integrity = ranks::integrityOf(rank.context);
  std::string own;
  HEDDLE_RT_TRY(scanStates(rank, own));
  // States first: what is given follows from them.
  int64_t order = own.empty() ? kNone : -1;
  if (own.empty() && integrity.noNumber) {
    order = integrity.noNumber->number;
    own = tell(rank, *integrity.noNumber);
  }
  HEDDLE_RT_TRY(nameFirst(rank, order, own, text));
  return text.empty() ? findLargest(rank, text) : HEDDLE_RT_OK;
}

heddle_rt_status findLargest(Rank &rank, std::string &text) {
  const Integrity &integrity = ranks::integrityOf(rank.context);
  if (!integrity.largest)
    return nameFirst(rank, kNone, "", text);
  // Doubles that are not negative are ordered as their bits are.
  const double size = std::abs(integrity.largest->value);
  return nameFirst(rank, -std::bit_cast<int64_t>(size),
                   tell(rank, *integrity.largest), text);
}

heddle_rt_status checkSums(Rank &rank, int64_t step) {
  const Integrity &integrity = ranks::integrityOf(rank.context);
  std::string own;
  if (integrity.wrongSum) {
    const Integrity::WrongSum &w = *integrity.wrongSum;
    own = w.wasCopied
              ? fmt::format("{}, reduction {} of the step: the slice of place "
                            "{} is not what that place has sent",
                            w.name, w.number, w.place)
              : fmt::format("{}, reduction {} of the step: the sum over the "
                            "slice of place {} is {:g} off, where rounding "
                            "makes at most {:g}",
                            w.name, w.number, w.place, w.off, w.tolerance);
  }
  std::vector<int64_t> all;
  HEDDLE_RT_TRY(rank.gather(
      {integrity.wrongSum ? integrity.wrongSum->number : kNone}, all));
  const auto first = std::min_element(all.begin(), all.end());
  if (*first == kNone)
    return HEDDLE_RT_OK;
  const int64_t blamed = first - all.begin();
  HEDDLE_RT_TRY(rank.shareText(blamed, own));
  return runtime::fail(HEDDLE_RT_CHECK_FAILED,
                       "step {}: a sum over ranks is wrong on rank {}: {}",
                       step, blamed, own);
}

} // namespace heddle::train
