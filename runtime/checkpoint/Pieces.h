//===- Pieces.h - A rank's share of a tensor, as boxes of its file form ---===//
//
// On disk a tensor is a row-major array in the form that its model's files
// have (Tables.h: FileForm). What a rank stores of it is a union of boxes of
// that form: the block that its layout gives it, or a run of the block's row
// where the state is sharded further, without padding.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_CHECKPOINT_PIECES_H
#define RUNTIME_CHECKPOINT_PIECES_H

#include "heddle/Runtime/Tables.h"
#include "heddle/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heddle::checkpoint {

/// Elements offset[d] <= i[d] < offset[d] + size[d]. Without dimensions: one.
struct Box {
  std::vector<int64_t> offset, size;

  int64_t elements() const;
  bool operator==(const Box &) const = default;
  auto operator<=>(const Box &) const = default;
};

/// "[0:4, 8:16]".
std::string textOf(const Box &box);
/// What two boxes of one tensor share; none where that is nothing.
std::optional<Box> overlap(const Box &a, const Box &b);
/// Why `boxes` are no tiling of a tensor of `shape`: one is empty or stands
/// out, two overlap, an element is in none, or more than 8 dimensions are cut.
/// None where they tile it exactly.
std::optional<std::string> tilingFault(const std::vector<int64_t> &shape,
                                       const std::vector<Box> &boxes);

/// A box of the file form, and where a rank stores its elements.
struct Piece {
  struct Dim {
    int64_t count, stride;
  };
  Box box;
  std::vector<Dim> dims; ///< the box's elements, row-major
  int64_t place = 0;     ///< of the first one, in what the rank stores

  /// Rows: what the first of `dims` counts; 1 where there are none.
  int64_t rows() const { return dims.empty() ? 1 : dims[0].count; }
  /// Copies rows [first, first + count) between what the rank stores and
  /// their elements side by side, `width` bytes each.
  void gather(const std::byte *stored, int64_t width, int64_t first,
              int64_t count, std::byte *to) const;
  void scatter(const std::byte *from, int64_t width, std::byte *stored) const;

private:
  template <class Copy>
  void walk(int64_t first, int64_t count, Copy copy) const;
};

/// What a rank has of each instance of a state that its stage holds.
struct Share {
  int64_t stored = 0; ///< elements, with padding
  std::vector<Piece> pieces;
  /// Of the ranks of its stage that store the same, in rank order.
  int64_t replica = 0, replicas = 1;
};

/// An error where the file form is no merge of the state's dimensions.
Result<Share> shareOf(const runtime::Tables &tables, int64_t rank,
                      const runtime::State &state);

} // namespace heddle::checkpoint

#endif
