#include "runtime/checkpoint/Pieces.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace heddle::checkpoint {

namespace {

/// [first, last) of one dimension.
struct Range {
  int64_t first, last;
};
using Ranges = std::vector<Range>;

/// Boxes that make up [begin, end) of a row-major block, in order: in n
/// dimensions at most 2 n - 1.
class RangeCutter {
public:
  RangeCutter(const std::vector<int64_t> &sizes, std::vector<Ranges> &to)
      : sizes(sizes), to(to), at(sizes.size()) {}

  void cut(int64_t begin, int64_t end, size_t dim = 0) {
    if (begin >= end)
      return;
    if (dim == sizes.size()) {
      to.push_back(at);
      return;
    }
    int64_t stride = 1;
    for (size_t d = dim + 1; d < sizes.size(); ++d)
      stride *= sizes[d];
    const int64_t first = begin / stride, last = end / stride;
    if (first == last)
      return within(dim, first, begin - first * stride, end - first * stride);
    int64_t whole = first;
    if (begin % stride != 0)
      within(dim, whole++, begin % stride, stride);
    if (whole < last) {
      at[dim] = {whole, last};
      for (size_t d = dim + 1; d < sizes.size(); ++d)
        at[d] = {0, sizes[d]};
      to.push_back(at);
    }
    within(dim, last, 0, end % stride);
  }

private:
  void within(size_t dim, int64_t index, int64_t begin, int64_t end) {
    at[dim] = {index, index + 1};
    cut(begin, end, dim + 1);
  }

  const std::vector<int64_t> &sizes;
  std::vector<Ranges> &to;
  Ranges at;
};

/// A dimension of the logical tensor, in the order of the file form.
struct CutDim {
  int64_t size;   ///< of the whole tensor
  Range range;    ///< of it, that the box has
  int64_t stride; ///< of the rank's block
};

/// Far more than any layout of a model asks for.
constexpr int64_t kMostPieces = int64_t(1) << 18;

/// Adds a file dimension, the merge of `cut`, to each piece so far. What of
/// the merge is no range of neighbours becomes several pieces; false where
/// those are too many.
bool addMerged(const std::vector<CutDim> &cut, std::vector<Piece> &pieces) {
  // Dimensions from `pivot` on make one range: those behind it are whole.
  size_t pivot = cut.size();
  int64_t inner = 1; // elements of the file dimension behind the pivot
  while (pivot > 0) {
    --pivot;
    const auto &[size, range, stride] = cut[pivot];
    if (range.last - range.first != size)
      break;
    inner *= size;
  }
  if (!cut.empty() &&
      cut[pivot].range.last - cut[pivot].range.first == cut[pivot].size)
    inner /= cut[pivot].size; // all are whole: the first is the pivot
  int64_t outer = 1;
  for (size_t d = 0; d < pivot; ++d)
    outer *= cut[d].range.last - cut[d].range.first;
  if (outer > kMostPieces / int64_t(pieces.size()))
    return false;
  std::vector<Piece> all;
  all.reserve(pieces.size() * size_t(outer));
  for (const Piece &piece : pieces)
    for (int64_t i = 0; i < outer; ++i) {
      Piece next = piece;
      int64_t rest = i, offset = 0, weight = inner;
      int64_t size = inner;
      for (size_t d = pivot; d < cut.size(); ++d) {
        const int64_t count = cut[d].range.last - cut[d].range.first;
        next.dims.push_back({count, cut[d].stride});
        next.place += cut[d].range.first * cut[d].stride;
        if (d == pivot) {
          offset += cut[d].range.first * weight;
          size *= count;
        }
      }
      if (!cut.empty())
        weight *= cut[pivot].size;
      for (size_t d = pivot; d-- > 0;) {
        const int64_t count = cut[d].range.last - cut[d].range.first;
        const int64_t index = cut[d].range.first + rest % count;
        rest /= count;
        offset += index * weight;
        next.place += index * cut[d].stride;
        weight *= cut[d].size;
      }
      next.box.offset.push_back(offset);
      next.box.size.push_back(size);
      all.push_back(std::move(next));
    }
  pieces = std::move(all);
  return true;
}

/// Dimensions of one element say nothing, and what lies side by side is one.
void simplify(Piece &piece) {
  std::vector<Piece::Dim> dims;
  for (const Piece::Dim &dim : piece.dims) {
    if (dim.count == 1)
      continue;
    if (!dims.empty() && dims.back().stride == dim.count * dim.stride)
      dims.back() = {dims.back().count * dim.count, dim.stride};
    else
      dims.push_back(dim);
  }
  piece.dims = std::move(dims);
}

/// How many of the cut dimensions, from `from` on, make a file dimension.
std::optional<size_t> mergedCount(const std::vector<CutDim> &dims, size_t from,
                                  int64_t size, bool isLast) {
  int64_t product = 1;
  size_t end = from;
  while (end < dims.size() && (product < size || isLast))
    product *= dims[end++].size;
  if (product != size)
    return std::nullopt;
  return end - from;
}

/// A rank's block of a state: true elements by logical dimension.
struct Block {
  Ranges held; ///< of the whole tensor
  std::vector<int64_t> strides;
  int64_t elements = 1;
};

struct Placement {
  Block block;
  int64_t storedBegin = 0, stored = 0; ///< of the block's row
  int64_t replica = 0, replicas = 1;
};

Placement placementOf(const runtime::Tables &tables, int64_t rank,
                      const runtime::Layout &layout) {
  const std::vector<int64_t> at = runtime::coordinatesOf(tables.mesh, rank);
  std::set<std::string> used = {tables.stages.axis};
  /// Which part of how many a rank has over `axes`.
  const auto part = [&](const std::vector<std::string> &axes) {
    std::pair<int64_t, int64_t> result{0, 1};
    for (const std::string &axis : axes)
      for (size_t a = 0; a < tables.mesh.size(); ++a)
        if (tables.mesh[a].first == axis) {
          result.first = result.first * tables.mesh[a].second + at[a];
          result.second *= tables.mesh[a].second;
          used.insert(axis);
        }
    return result;
  };
  Placement p;
  const size_t n = layout.shape.size();
  p.block.held.resize(n);
  p.block.strides.resize(n);
  for (size_t d = n; d-- > 0;) {
    const int64_t first = part(layout.dims[d]).first * layout.local[d];
    p.block.held[d] = {std::min(first, layout.shape[d]),
                       std::min(first + layout.local[d], layout.shape[d])};
    p.block.strides[d] = p.block.elements;
    p.block.elements *= layout.local[d];
  }
  const auto [run, runs] = part(layout.runs);
  p.stored = (layout.row ? layout.row : p.block.elements) / runs;
  p.storedBegin = run * p.stored;
  for (size_t a = 0; a < tables.mesh.size(); ++a)
    if (const auto &[axis, size] = tables.mesh[a]; !used.contains(axis)) {
      p.replica = p.replica * size + at[a];
      p.replicas *= size;
    }
  return p;
}

/// The pieces of a box of the block, given in the block's own indices.
Result<void> addPieces(const runtime::State &state, const Placement &p,
                       const Ranges &box, std::vector<Piece> &to) {
  const size_t n = box.size();
  std::vector<CutDim> dims(n); // in the order of the file form
  Piece start;
  start.place = -p.storedBegin;
  for (size_t d = 0; d < n; ++d) {
    const size_t f = [&] {
      const std::vector<int32_t> &order = state.file.order;
      return order.empty() ? d : size_t(order[d]);
    }();
    const int64_t first = p.block.held[d].first;
    const int64_t count = p.block.held[d].last - first;
    const Range range = {first + std::min(box[d].first, count),
                         first + std::min(box[d].last, count)};
    if (range.first == range.last)
      return {}; // padding only
    dims[f] = {state.layout.shape[d], range, p.block.strides[d]};
    start.place -= first * p.block.strides[d];
  }
  std::vector<Piece> pieces = {start};
  size_t next = 0;
  for (size_t j = 0; j < state.file.shape.size(); ++j) {
    const std::optional<size_t> count = mergedCount(
        dims, next, state.file.shape[j], j + 1 == state.file.shape.size());
    if (!count)
      return Error{fmt::format(
          "tables.bin: {} {}: the file form [{}] is no merge of dimensions of "
          "[{}]",
          state.kind, state.name, fmt::join(state.file.shape, ", "),
          fmt::join(state.layout.shape, ", "))};
    const auto from = dims.begin() + int64_t(next);
    if (!addMerged({from, from + int64_t(*count)}, pieces))
      return Error{fmt::format("tables.bin: {} {}: a rank's share has more "
                               "than {} pieces",
                               state.kind, state.name, kMostPieces)};
    next += *count;
  }
  for (Piece &piece : pieces)
    simplify(piece);
  to.insert(to.end(), pieces.begin(), pieces.end());
  return {};
}

/// A box, or one that is taken away.
struct Signed {
  const Box *box;
  int sign;
};

/// Whether `boxes` add up to zero at each element, by its indices from `dim`
/// on; else those of the first one where they do not go to `wrong`.
///
/// A function of bounded support is zero where all its differences along a
/// dimension are, and the first one that is not has the function's own values:
/// all before it are zero. The last one is what the others leave.
bool isZero(const std::vector<Signed> &boxes, size_t dim,
            std::vector<int64_t> &wrong) {
  if (dim == wrong.size()) {
    int64_t sum = 0;
    for (const Signed &one : boxes)
      sum += one.sign;
    return sum == 0;
  }
  std::vector<std::pair<int64_t, Signed>> edges;
  edges.reserve(2 * boxes.size());
  for (const auto &[box, sign] : boxes) {
    edges.push_back({box->offset[dim], {box, sign}});
    edges.push_back({box->offset[dim] + box->size[dim], {box, -sign}});
  }
  std::sort(edges.begin(), edges.end(),
            [](const auto &a, const auto &b) { return a.first < b.first; });
  std::vector<Signed> here;
  for (size_t i = 0; i < edges.size(); ++i) {
    here.push_back(edges[i].second);
    const int64_t at = edges[i].first;
    if (i + 1 == edges.size() || edges[i + 1].first == at)
      continue;
    wrong[dim] = at;
    if (!isZero(here, dim + 1, wrong))
      return false;
    here.clear();
  }
  return true;
}

/// No layout of a model cuts a tensor along more.
constexpr int64_t kMostCutDims = 8;

/// Boxes that stand in `shape`, each element in one; else which is not.
/// Time is that of sorting 2 to the number of cut dimensions as many.
std::optional<std::string> coverFault(const std::vector<int64_t> &shape,
                                      const std::vector<Box> &boxes) {
  int64_t cutDims = 0;
  for (size_t d = 0; d < shape.size(); ++d)
    cutDims += std::any_of(boxes.begin(), boxes.end(), [&](const Box &box) {
      return box.size[d] != shape[d];
    });
  if (cutDims > kMostCutDims)
    return fmt::format("the extents cut {} dimensions, expected at most {}",
                       cutDims, kMostCutDims);
  const Box whole = {std::vector<int64_t>(shape.size(), 0), shape};
  std::vector<Signed> all = {{&whole, -1}};
  for (const Box &box : boxes)
    all.push_back({&box, 1});
  std::vector<int64_t> wrong(shape.size());
  if (isZero(all, 0, wrong))
    return std::nullopt;
  const Box *first = nullptr;
  for (const Box &box : boxes) {
    bool has = true;
    for (size_t d = 0; d < shape.size(); ++d)
      has = has && box.offset[d] <= wrong[d] &&
            wrong[d] - box.offset[d] < box.size[d];
    if (has && first)
      return fmt::format("extents {} and {} overlap", textOf(*first),
                         textOf(box));
    if (has)
      first = &box;
  }
  return fmt::format("no extent has element [{}]", fmt::join(wrong, ", "));
}

} // namespace

int64_t Box::elements() const {
  int64_t n = 1;
  for (int64_t s : size)
    n *= s;
  return n;
}

std::string textOf(const Box &box) {
  std::vector<std::string> parts;
  for (size_t d = 0; d < box.size.size(); ++d)
    parts.push_back(
        fmt::format("{}:{}", box.offset[d], box.offset[d] + box.size[d]));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::optional<Box> overlap(const Box &a, const Box &b) {
  Box both = a;
  for (size_t d = 0; d < a.size.size(); ++d) {
    both.offset[d] = std::max(a.offset[d], b.offset[d]);
    both.size[d] = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]) -
                   both.offset[d];
    if (both.size[d] <= 0)
      return std::nullopt;
  }
  return both;
}

std::optional<std::string> tilingFault(const std::vector<int64_t> &shape,
                                       const std::vector<Box> &boxes) {
  int64_t found = 0, expected = 1;
  for (int64_t size : shape)
    if (__builtin_mul_overflow(expected, size, &expected))
      return "the shape has more than 2^63 elements";
  for (const Box &box : boxes) {
    if (box.offset.size() != shape.size() || box.size.size() != shape.size())
      return fmt::format("an extent has {} offsets and {} sizes, expected {} "
                         "of each",
                         box.offset.size(), box.size.size(), shape.size());
    for (size_t d = 0; d < shape.size(); ++d)
      if (box.offset[d] < 0 || box.size[d] < 1 || box.size[d] > shape[d] ||
          box.offset[d] > shape[d] - box.size[d])
        return fmt::format("extent {} is empty or stands out of [{}]",
                           textOf(box), fmt::join(shape, ", "));
    if (__builtin_add_overflow(found, box.elements(), &found) ||
        found > expected)
      return "the extents have more elements than the tensor";
  }
  return coverFault(shape, boxes);
}

template <class Copy>
void Piece::walk(int64_t first, int64_t count, Copy copy) const {
  if (dims.empty())
    return copy(place, 0, 1);
  const Dim &last = dims.back();
  const int64_t run =
      last.stride == 1 ? (dims.size() == 1 ? count : last.count) : 1;
  int64_t inner = 1; // elements of a row
  for (size_t d = 1; d < dims.size(); ++d)
    inner *= dims[d].count;
  const int64_t elements = count * inner;
  for (int64_t at = 0; at < elements; at += run) {
    int64_t from = place, rest = at;
    for (size_t d = dims.size(); d-- > 1;) {
      from += rest % dims[d].count * dims[d].stride;
      rest /= dims[d].count;
    }
    copy(from + (first + rest) * dims[0].stride, at, run);
  }
}

void Piece::gather(const std::byte *stored, int64_t width, int64_t first,
                   int64_t count, std::byte *to) const {
  walk(first, count, [&](int64_t from, int64_t at, int64_t run) {
    memcpy(to + at * width, stored + from * width, size_t(run * width));
  });
}

void Piece::scatter(const std::byte *from, int64_t width,
                    std::byte *stored) const {
  walk(0, rows(), [&](int64_t to, int64_t at, int64_t run) {
    memcpy(stored + to * width, from + at * width, size_t(run * width));
  });
}

Result<Share> shareOf(const runtime::Tables &tables, int64_t rank,
                      const runtime::State &state) {
  const Placement p = placementOf(tables, rank, state.layout);
  Share share;
  share.stored = p.stored;
  share.replica = p.replica;
  share.replicas = p.replicas;
  std::vector<Ranges> boxes;
  RangeCutter(state.layout.local, boxes)
      .cut(std::min(p.storedBegin, p.block.elements),
           std::min(p.storedBegin + p.stored, p.block.elements));
  for (const Ranges &box : boxes)
    if (auto done = addPieces(state, p, box, share.pieces); !done)
      return done.error();
  return share;
}

} // namespace heddle::checkpoint
