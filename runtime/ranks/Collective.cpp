#include "runtime/ranks/Collective.h"

#include "runtime/common/Dtype.h"
#include "runtime/ranks/Reduce.h"

#include <algorithm>

namespace heddle::ranks {

heddle_rt_status Collective::begin() {
  current = 0;
  return beginRound();
}

void Collective::detach() {
  detached = true;
  int64_t bytes = 0;
  for (const Round &round : rounds)
    for (const Piece &piece : round.sends)
      bytes += piece.memory.bytes();
  staging = std::make_unique_for_overwrite<std::byte[]>(size_t(bytes));
  std::byte *at = staging.get();
  for (Round &round : rounds)
    for (Piece &piece : round.sends) {
      const int64_t size = piece.memory.bytes();
      const Strided copy{at, 1, size, size};
      copyStrided(copy, piece.memory);
      piece.memory = copy;
      at += size;
    }
}

heddle_rt_status Collective::beginRound() {
  Round &round = rounds[current];
  if (round.before)
    round.before();
  const Piece *own = nullptr;
  std::vector<Piece> sends, receives;
  for (const Piece &piece : round.sends)
    if (piece.peer == place.rank)
      own = &piece;
    else if (piece.memory.bytes() > 0)
      sends.push_back(piece);
  for (const Piece &piece : round.receives)
    if (piece.peer != place.rank) {
      if (piece.memory.bytes() > 0)
        receives.push_back(piece);
    } else if (own && own->memory.data != piece.memory.data)
      copyStrided(piece.memory, own->memory);
  request = place.seat->exchange(place.tag + int(current), sends, receives,
                                 place.name);
  return request ? HEDDLE_RT_OK : HEDDLE_RT_PEER_FAILED;
}

Progress Collective::test() {
  while (true) {
    const Progress progress = request->test();
    if (progress != Progress::Done)
      return progress;
    request.reset();
    if (rounds[current].after)
      rounds[current].after();
    if (++current == rounds.size())
      return Progress::Done;
    if (beginRound() != HEDDLE_RT_OK)
      return Progress::Failed;
  }
}

namespace {

std::byte *bytesAt(const void *base, int64_t offset) {
  return static_cast<std::byte *>(const_cast<void *>(base)) + offset;
}

Strided run(std::byte *data, int64_t bytes) { return {data, 1, bytes, bytes}; }

/// What is looked at of a sum of floats, while it is made.
class Checked {
public:
  /// NULL where nobody looks.
  static std::shared_ptr<Checked> make(const Place &place,
                                       heddle_rt_dtype dtype,
                                       heddle_rt_reduction reduction) {
    if (!place.integrity || reduction != HEDDLE_RT_SUM || !isFloat(dtype))
      return nullptr;
    return std::make_shared<Checked>(place, dtype);
  }
  Checked(const Place &place, heddle_rt_dtype dtype)
      : place(place), dtype(dtype), given(size_t(place.size)),
        got(given.size()), copies(given.size()) {}

  /// Adds numbers about slices to the messages of the summing round.
  void addTo(Collective::Round &round) {
    for (int peer = 0; peer < place.size; ++peer)
      if (sums() && peer != place.rank) {
        round.sends.push_back({peer, bytesOfSum(given[size_t(peer)])});
        round.receives.push_back({peer, bytesOfSum(got[size_t(peer)])});
      }
  }
  void addToCopies(Collective::Round &round) {
    for (int peer = 0; peer < place.size; ++peer)
      if (sums() && peer != place.rank) {
        round.sends.push_back({peer, bytesOfSum(own)});
        round.receives.push_back({peer, bytesOfSum(copies[size_t(peer)])});
      }
  }
  void begin(const std::function<Strided(int)> &sliceOf) {
    int64_t elements = 0, first = 0;
    for (int peer = 0; peer < place.size; ++peer)
      elements += sliceOf(peer).bytes() / runtime::bytesOf(dtype);
    number = place.integrity->beginReduction(elements);
    for (int peer = 0; peer < place.size; ++peer) {
      const Strided slice = sliceOf(peer);
      place.integrity->tamperWith(number.large, Integrity::Where::Given, slice);
      place.integrity->given(number.all, place.name, slice, first, dtype,
                             given[size_t(peer)]);
      first += slice.bytes() / runtime::bytesOf(dtype);
    }
    got[size_t(place.rank)] = given[size_t(place.rank)];
  }
  void tamperOnTheWay(const Strided &part) const {
    place.integrity->tamperWith(number.large, Integrity::Where::OnTheWay, part);
  }
  void tamperWithResult(const Strided &result) const {
    place.integrity->tamperWith(number.large, Integrity::Where::Result, result);
  }
  void summed(const Strided &slice) {
    place.integrity->summed(number.all, place.name, place.rank, slice, dtype,
                            got, own);
  }
  void copied(int peer, const Strided &slice) const {
    place.integrity->copied(number.all, place.name, peer, slice, dtype,
                            copies[size_t(peer)]);
  }

private:
  bool sums() const { return place.integrity->looks().sums; }
  static Strided bytesOfSum(SliceSum &sum) {
    return run(reinterpret_cast<std::byte *>(&sum), sizeof sum);
  }
  Place place;
  heddle_rt_dtype dtype;
  Integrity::Number number = {};
  std::vector<SliceSum> given, got, copies; ///< by place
  SliceSum own;
};

/// A round in which every rank sums its own slice: peers' parts come into the
/// staging memory, one after the other, and are added in rank order.
Collective::Round summing(Collective &collective, const Place &place,
                          const std::function<Strided(int)> &sliceOf,
                          std::byte *output, heddle_rt_dtype dtype,
                          heddle_rt_reduction reduction,
                          const std::shared_ptr<Checked> &checked) {
  const Strided own = sliceOf(place.rank);
  const int64_t bytes = own.bytes();
  collective.staging =
      std::make_unique_for_overwrite<std::byte[]>(size_t(bytes * place.size));
  Collective::Round round;
  std::vector<const void *> parts;
  for (int peer = 0; peer < place.size; ++peer) {
    std::byte *part = collective.staging.get() + peer * bytes;
    // One's own part is added where it is, unless it has to be made dense.
    if (peer == place.rank && own.blocks <= 1)
      part = own.data;
    parts.push_back(part);
    round.sends.push_back({peer, sliceOf(peer)});
    round.receives.push_back({peer, run(part, bytes)});
  }
  const int64_t elements = bytes / runtime::bytesOf(dtype);
  round.after = [=] { reduce(output, parts, elements, dtype, reduction); };
  if (!checked)
    return round;
  checked->addTo(round);
  round.before = [=] { checked->begin(sliceOf); };
  const int other = (place.rank + 1) % place.size;
  std::byte *way = collective.staging.get() + other * bytes;
  const bool comes = other != place.rank;
  round.after = [=, sum = round.after] {
    if (comes)
      checked->tamperOnTheWay(run(way, bytes));
    sum();
    checked->summed(run(output, bytes));
  };
  return round;
}

} // namespace

std::unique_ptr<Collective> allReduce(const Place &place, const void *input,
                                      void *output, int64_t elements,
                                      heddle_rt_dtype dtype,
                                      heddle_rt_reduction reduction) {
  auto collective = std::make_unique<Collective>(place);
  const int64_t size = runtime::bytesOf(dtype);
  const int64_t slice = (elements + place.size - 1) / place.size;
  const auto sliceOf = [=](const void *base, int rank) {
    const int64_t begin = std::min(slice * rank, elements);
    const int64_t end = std::min(slice * (rank + 1), elements);
    return run(bytesAt(base, begin * size), (end - begin) * size);
  };
  const Strided own = sliceOf(output, place.rank);
  const auto checked = Checked::make(place, dtype, reduction);
  collective->rounds.push_back(summing(
      *collective, place, [=](int rank) { return sliceOf(input, rank); },
      own.data, dtype, reduction, checked));
  Collective::Round copies;
  for (int peer = 0; peer < place.size; ++peer) {
    copies.sends.push_back({peer, own});
    copies.receives.push_back({peer, sliceOf(output, peer)});
  }
  if (checked) {
    checked->addToCopies(copies);
    copies.after = [=, bytes = size, ranks = place.size, rank = place.rank] {
      for (int peer = 0; peer < ranks; ++peer)
        if (peer != rank)
          checked->copied(peer, sliceOf(output, peer));
      checked->tamperWithResult(run(bytesAt(output, 0), elements * bytes));
    };
  }
  collective->rounds.push_back(std::move(copies));
  return collective;
}

std::unique_ptr<Collective> reduceScatter(const Place &place, const void *input,
                                          void *output, int64_t outer,
                                          int64_t slice, heddle_rt_dtype dtype,
                                          heddle_rt_reduction reduction) {
  auto collective = std::make_unique<Collective>(place);
  const int64_t bytes = slice * runtime::bytesOf(dtype);
  const auto sliceOf = [=](int rank) {
    return Strided{bytesAt(input, rank * bytes), outer, bytes,
                   bytes * place.size};
  };
  const auto checked = Checked::make(place, dtype, reduction);
  collective->rounds.push_back(summing(*collective, place, sliceOf,
                                       bytesAt(output, 0), dtype, reduction,
                                       checked));
  if (checked)
    collective->rounds.back().after = [=,
                                       sum = collective->rounds.back().after] {
      sum();
      checked->tamperWithResult(run(bytesAt(output, 0), outer * bytes));
    };
  return collective;
}

std::unique_ptr<Collective> allGather(const Place &place, const void *input,
                                      void *output, int64_t outer,
                                      int64_t sliceBytes) {
  auto collective = std::make_unique<Collective>(place);
  Collective::Round round;
  for (int peer = 0; peer < place.size; ++peer) {
    round.sends.push_back({peer, run(bytesAt(input, 0), outer * sliceBytes)});
    round.receives.push_back({peer,
                              {bytesAt(output, peer * sliceBytes), outer,
                               sliceBytes, sliceBytes * place.size}});
  }
  collective->rounds.push_back(std::move(round));
  return collective;
}

std::unique_ptr<Collective> allToAll(const Place &place, const void *input,
                                     void *output,
                                     const heddle_rt_all_to_all_shape &shape,
                                     int64_t elementBytes) {
  // Along the dimension that is cut, a peer's piece is one run in each block of
  // what is outside it; likewise along the dimension that grows.
  const int64_t inner = shape.inner * elementBytes;
  const bool first = shape.split_first;
  const int64_t splitRun =
      shape.split * (first ? shape.middle * shape.concat : 1) * inner;
  const int64_t concatRun =
      shape.concat * (first ? 1 : shape.middle * shape.split) * inner;
  const int64_t splitBlocks =
      shape.outer * (first ? 1 : shape.concat * shape.middle);
  const int64_t concatBlocks =
      shape.outer * (first ? shape.split * shape.middle : 1);
  auto collective = std::make_unique<Collective>(place);
  Collective::Round round;
  for (int peer = 0; peer < place.size; ++peer) {
    round.sends.push_back({peer,
                           {bytesAt(input, peer * splitRun), splitBlocks,
                            splitRun, splitRun * place.size}});
    round.receives.push_back({peer,
                              {bytesAt(output, peer * concatRun), concatBlocks,
                               concatRun, concatRun * place.size}});
  }
  collective->rounds.push_back(std::move(round));
  return collective;
}

std::unique_ptr<Collective> permute(const Place &place, const void *input,
                                    void *output, int64_t bytes,
                                    const int32_t *from) {
  auto collective = std::make_unique<Collective>(place);
  Collective::Round round;
  for (int peer = 0; peer < place.size; ++peer)
    if (from[peer] == place.rank)
      round.sends.push_back({peer, run(bytesAt(input, 0), bytes)});
  if (from[place.rank] >= 0)
    round.receives.push_back(
        {from[place.rank], run(bytesAt(output, 0), bytes)});
  collective->rounds.push_back(std::move(round));
  return collective;
}

std::unique_ptr<Collective> sendTo(const Place &place, const void *input,
                                   int64_t bytes, int peer) {
  auto collective = std::make_unique<Collective>(place);
  collective->rounds.push_back(
      {{{peer, run(bytesAt(input, 0), bytes)}}, {}, {}});
  return collective;
}

std::unique_ptr<Collective> receiveFrom(const Place &place, void *output,
                                        int64_t bytes, int peer) {
  auto collective = std::make_unique<Collective>(place);
  collective->rounds.push_back(
      {{}, {{peer, run(bytesAt(output, 0), bytes)}}, {}});
  return collective;
}

} // namespace heddle::ranks
