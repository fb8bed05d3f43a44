#include "runtime/train/Options.h"

#include "heddle/Support/Document.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

namespace heddle::train {

namespace {
const char *const kUsage =
    R"(usage: train [options]
  --data FILE         text, .bin (tokens), .safetensors or .json (batches)
  --steps N           default: the schedule's steps, else 1
  --weights FILE      initial parameters (safetensors, HF names)
  --test-init         random biases and norm weights too
  --dump FILE         loss, gradients and parameters after the last step
  --save FILE         parameters after the last step
  --save-every N|auto a checkpoint every N steps, or as often as loses least
  [--keep N]          checkpoints that stay; default: 2
  --resume            go on from the newest checkpoint that is whole
  [--checkpoints DIR] default: checkpoints beside the program
  [--any-owner]       a folder of checkpoints that another user owns is taken
  --log FILE          a JSON line per step; default: log.jsonl beside the program
  --replica-check N   compare replicas bit by bit every N steps
  --sum-check N       in every Nth step, sums over ranks against sums of parts
  --replay N          run every Nth step twice, and compare bit by bit
  --guard N           pass over at most N steps in a row whose gradients are no
                      numbers, and name the rank and tensor that they are from
  --norm-limit K      stop where their norm is more than K times what is usual
  --threads           ranks are threads of this process instead of MPI
  --compute-threads N threads that one rank computes with
  --check [--seed S]  checking mode: late streams in a random order; the bytes
  [--ranges DIR]      that the last step touches go to DIR/ranges.RANK.jsonl
  --inject-inf STEP   in that step a parameter of rank R is infinite: to see
  [--rank R]          what training does then
  --inject FAULT@STEP that happens to rank R in that step, where FAULT is
  [--rank R]          (FAULT@STEP#N draws another place)
%FAULTS%  --dry [--rank R]    record the program of one rank; the trace, as JSON,
  [--trace FILE]      goes to stdout or FILE
  --tables FILE       default: tables.bin beside the program, or in program/
  --token-bytes N     2 or 4, of a .bin; default: by the vocabulary
)";

constexpr int64_t most = int64_t(1) << 40;

/// tables.bin beside the program, else in its folder `program`.
std::string findTables(const std::filesystem::path &folder) {
  const std::filesystem::path beside = folder / "tables.bin";
  std::error_code ignored;
  return std::filesystem::exists(beside, ignored)
             ? beside.string()
             : (folder / "program" / "tables.bin").string();
}

Result<int64_t> integer(std::string_view name, std::string_view text,
                        int64_t min, int64_t max) {
  int64_t value = 0;
  const char *end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < min ||
      value > max)
    return Error{fmt::format("{}: found '{}', expected an integer from {} to "
                             "{}",
                             name, text, min, max)};
  return value;
}

/// What each option sets.
class Table {
public:
  explicit Table(Options &o)
      : texts({{"--data", &o.data},
               {"--batch", &o.data},
               {"--log", &o.log},
               {"--dump", &o.dump},
               {"--save", &o.save},
               {"--weights", &o.weights},
               {"--checkpoints", &o.checkpoints},
               {"--save-every", &o.saveEvery},
               {"--trace", &o.trace},
               {"--ranges", &o.ranges},
               {"--inject", &o.inject},
               {"--tables", &o.tables}}),
        numbers({{"--steps", {&o.steps, 1, most}},
                 {"--token-bytes", {&o.tokenBytes, 2, 4}},
                 {"--replica-check", {&o.replicaCheck, 1, most}},
                 {"--sum-check", {&o.sumCheck, 1, most}},
                 {"--replay", {&o.replay, 1, most}},
                 {"--guard", {&o.guard, 1, most}},
                 {"--norm-limit", {&o.normLimit, 2, most}},
                 {"--inject-inf", {&o.injectInf, 1, most}},
                 {"--keep", {&o.keep, 1, most}},
                 {"--rank", {&o.rank, 0, 1 << 30}},
                 {"--seed", {&o.seed, 0, most}},
                 {"--compute-threads", {&o.computeThreads, 1, 4096}}}),
        flags({{"--threads", &o.threads},
               {"--check", &o.check},
               {"--dry", &o.dry},
               {"--resume", &o.resume},
               {"--any-owner", &o.anyOwner},
               {"--test-init", &o.testInit},
               {"--help", &o.help}}) {}

  bool setFlag(const std::string &name) const {
    const auto found = flags.find(name);
    if (found != flags.end())
      *found->second = true;
    return found != flags.end();
  }
  bool takesValue(const std::string &name) const {
    return texts.contains(name) || numbers.contains(name);
  }
  Result<void> setValue(const std::string &name, const char *value) const {
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = value;
      return {};
    }
    const Number &number = numbers.at(name);
    const Result<int64_t> parsed = integer(name, value, number.min, number.max);
    if (!parsed)
      return parsed.error();
    *number.to = *parsed;
    return {};
  }
  Error unknown(const std::string &name) const {
    std::vector<std::string> known;
    for (const auto &entry : texts)
      known.push_back(entry.first);
    for (const auto &entry : numbers)
      known.push_back(entry.first);
    for (const auto &entry : flags)
      known.push_back(entry.first);
    const auto near = nearestName(name, known);
    return Error{fmt::format("option '{}' is unknown{}", name,
                             near ? fmt::format("; did you mean {}?", *near)
                                  : "; --help lists them")};
  }

private:
  struct Number {
    int64_t *to, min, max;
  };
  std::map<std::string, std::string *> texts;
  std::map<std::string, Number> numbers;
  std::map<std::string, bool *> flags;
};

Result<void> checkTogether(const Options &options) {
  if (options.tokenBytes == 3)
    return Error{"--token-bytes: found '3', expected 2 or 4"};
  if (!options.ranges.empty() && !options.check)
    return Error{"--ranges wants --check: only checking mode looks at ranges"};
  if (!options.saveEvery.empty() && options.saveEvery != "auto")
    if (const auto steps = integer("--save-every", options.saveEvery, 1, most);
        !steps)
      return Error{steps.message() + ", or auto"};
  if (options.resume && !options.weights.empty())
    return Error{"--resume and --weights: a checkpoint has the weights; give "
                 "one of the two"};
  if (options.dry)
    return {};
  if (options.data.empty() && !options.help)
    return Error{"there is no data: give --data FILE (any text will do)"};
  return {};
}

} // namespace

std::string usage() {
  constexpr std::string_view kHere = "%FAULTS%";
  std::string text = kUsage;
  return text.replace(text.find(kHere), kHere.size(), kFaultHelp);
}

int64_t Options::saveSteps() const {
  return saveEvery.empty() || saveEvery == "auto" ? 0 : std::stoll(saveEvery);
}

Result<Options> parseOptions(int argc, const char *const *argv) {
  Options o;
  const std::filesystem::path folder =
      std::filesystem::path(argv[0]).parent_path();
  o.tables = findTables(folder);
  o.log = (folder / "log.jsonl").string();
  o.checkpoints = (folder / "checkpoints").string();
  const Table table(o);
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (table.setFlag(name))
      continue;
    if (!table.takesValue(name))
      return table.unknown(name);
    if (i + 1 == argc)
      return Error{fmt::format("option {} wants a value", name)};
    if (auto done = table.setValue(name, argv[++i]); !done)
      return done.error();
  }
  if (!o.inject.empty()) {
    Result<InjectedFault> fault = parseFault(o.inject);
    if (!fault)
      return fault.error();
    o.fault = *fault;
  }
  if (auto done = checkTogether(o); !done)
    return done.error();
  return o;
}

} // namespace heddle::train
