#include "heddle/Support/Printable.h"

#include "Scalars.h"

#include <fmt/format.h>

using namespace heddle;

std::size_t detail::sequenceLength(std::string_view text) {
  auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  auto follows = [&](std::size_t i) { return (byte(i) & 0xc0) == 0x80; };
  unsigned first = byte(0);
  if (first < 0x80)
    return first == 0 ? 0 : 1;
  if (first >= 0xc2 && first < 0xe0)
    return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    bool overlong = first == 0xe0 && byte(1) < 0xa0;
    bool surrogate = first == 0xed && byte(1) >= 0xa0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    bool overlong = first == 0xf0 && byte(1) < 0x90;
    bool beyond = first == 0xf4 && byte(1) >= 0x90;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4
                                                                          : 0;
  }
  return 0;
}

std::size_t detail::controlLength(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f)
    return 1;
  const bool isC1 = first == 0xc2 && text.size() > 1 &&
                    static_cast<unsigned char>(text[1]) < 0xa0;
  return isC1 ? 2 : 0;
}

/// Bytes of the next character; 0 where it cannot be printed.
static std::size_t printableLength(std::string_view text) {
  return detail::controlLength(text) ? 0 : detail::sequenceLength(text);
}

bool heddle::isPrintable(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = printableLength(text);
    if (length == 0)
      return false;
    text.remove_prefix(length);
  }
  return true;
}

/// Nobody reads more of a line.
static constexpr std::size_t maxShown = 1000;

/// Begin and end of a text; characters are not cut.
static std::string shortened(std::string_view text) {
  const auto isWithin = [&](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80;
  };
  std::size_t head = maxShown / 2, tail = text.size() - maxShown / 2;
  for (int i = 0; i < 3 && isWithin(head); ++i)
    --head;
  for (int i = 0; i < 3 && tail < text.size() && isWithin(tail); ++i)
    ++tail;
  return fmt::format("{} ({} bytes) {}", printable(text.substr(0, head)),
                     tail - head, printable(text.substr(tail)));
}

std::string heddle::printable(std::string_view text) {
  if (text.size() > maxShown)
    return shortened(text);
  std::string out;
  while (!text.empty()) {
    const std::size_t length = printableLength(text);
    if (length > 0)
      out += text.substr(0, length);
    else if (text[0] == '\n')
      out += "\\n";
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}
