//===- EmitStep.cpp - rt.program => step.cpp ------------------------------===//

#include "passes/Lowering/Emit.h"

#include "passes/Lowering/EmitFunction.h"
#include "passes/Lowering/EmitText.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using llvm::formatv;

namespace heddle::lowering {

std::string ProgramNames::communicatorWish(ArrayAttr axes) {
  if (axes.empty())
    return "self";
  return llvm::join(axes.getAsValueRange<StringAttr>(), "_");
}

ProgramNames::ProgramNames(rt::ProgramOp program)
    : program(program), numbers(program, globals) {
  // What holds the numbers.
  members.give("n");
  members.give("place");
  program.walk([&](rt::GroupOp) {
    if (context.empty())
      context = members.give("context");
  });
  for (auto stream : program.getStreams().getAsRange<rt::StreamAttr>())
    streams.push_back(members.give(stream.getName()));
  for (auto axes : program.getCommunicators().getAsRange<ArrayAttr>())
    communicators.push_back(members.give(communicatorWish(axes)));
  if (program.getChannels())
    for (auto channel : program.getChannels()->getAsRange<rt::ChannelAttr>()) {
      StringRef name = channel.getName();
      channels[name] = {members.give((name + "_out").str()),
                        members.give((name + "_in").str())};
    }
  for (rt::NumbersOp table : numbers.tables)
    tables[table.getSymName()] = members.give(table.getSymName());
  llvm::StringSet<> inRows;
  for (const ProgramNumbers::EventRow &row : numbers.eventRows) {
    eventRows[row.name] = members.give(row.name);
    for (int64_t i = 0; i < numbers.counts[row.count].value; ++i)
      inRows.insert(rt::eventInRow(row.name, i));
  }
  for (StringRef event : program.getEvents().getAsValueRange<StringAttr>())
    if (!inRows.contains(event))
      events[event] = members.give(event);
  for (auto arena : program.getArenas().getAsRange<rt::ArenaAttr>())
    arenas.push_back(members.give((arena.getName() + "Arena").str()));
  for (rt::FuncOp func : reachableFunctions(program)) {
    functions[func.getSymName()] = globals.give(func.getSymName());
    func.getBody().walk([&](Operation *op) {
      if (auto index = dyn_cast<rt::RankIndexOp>(op);
          index && !places.contains(index.getAxes()))
        places[index.getAxes()] =
            members.give(communicatorWish(index.getAxes()) + "_place");
    });
  }
}

//===----------------------------------------------------------------------===//
// The parts around the functions
//===----------------------------------------------------------------------===//

/// What statements are written with. Every helper is used by some program only,
/// hence `inline`, about which no compiler warns.
static constexpr StringLiteral kHelpers = R"(
#define TRY(...)                                                                                                       \
  do {                                                                                                                 \
    if (heddle_rt_status status = (__VA_ARGS__))                                                                       \
      return status;                                                                                                   \
  } while (0)

/// The place `offset` bytes behind the beginning of an arena.
template <class T>
inline T *at(char *arena, int64_t offset) {
  return reinterpret_cast<T *>(arena + offset);
}

/// Queues what a function queues; where a device keeps graphs, again for the same numbers.
template <auto Function, class... Numbers>
inline heddle_rt_status graph(const char *name, heddle_rt_graph_part part, heddle_rt_stream *stream, heddle_program &p,
                              Numbers... numbers) {
  auto call = [&] { return Function(p, numbers...); };
  const int64_t all[] = {int64_t(numbers)..., 0};
  return heddle_rt_graph(
      stream, name, part, [](void *given) { return (*static_cast<decltype(call) *>(given))(); }, &call, all,
      sizeof...(numbers));
}

/// Makes events that are used in turn.
inline heddle_rt_status createEvents(heddle_rt_context *context, const std::string &name, int64_t count,
                                     std::vector<heddle_rt_event *> &events) {
  events.resize(size_t(count));
  for (size_t i = 0; i < events.size(); ++i)
    TRY(heddle_rt_event_create(context, (name + "[" + std::to_string(i) + "]").c_str(), &events[i]));
  return HEDDLE_RT_OK;
}

inline heddle_rt_status gemm(heddle_rt_stream *stream, const heddle_rt_gemm_args &args, const void *a, const void *b,
                             void *c) {
  return heddle_rt_gemm(stream, &args, a, b, c);
}

inline heddle_rt_status hadamard(heddle_rt_stream *stream, const heddle_rt_hadamard_args &args, const void *input,
                                 void *output) {
  return heddle_rt_hadamard(stream, &args, input, output);
}

inline heddle_rt_status quantize(heddle_rt_stream *stream, const heddle_rt_quantize_args &args, const void *input,
                                 const float *amax, void *codes, void *scale) {
  return heddle_rt_quantize(stream, &args, input, amax, codes, scale);
}

inline heddle_rt_status attention(heddle_rt_stream *stream, const heddle_rt_attention_args &args, const void *q,
                                  const void *k, const void *v, void *o, float *lse) {
  return heddle_rt_attention(stream, &args, q, k, v, o, lse);
}

inline heddle_rt_status attentionGrad(heddle_rt_stream *stream, const heddle_rt_attention_args &args, const void *q,
                                      const void *k, const void *v, const void *o, const float *lse,
                                      const void *grad_o, void *grad_q, void *grad_k, void *grad_v) {
  return heddle_rt_attention_grad(stream, &args, q, k, v, o, lse, grad_o, grad_q, grad_k, grad_v);
}

template <int N>
inline heddle_rt_status rope(heddle_rt_stream *stream, const char *name, int64_t positions, int64_t heads,
                             const double (&frequencies)[N], bool inverse, heddle_rt_dtype dtype,
                             const void *input, const int32_t *at, void *output) {
  const heddle_rt_rope_args args = {name, positions, heads, 2 * N, frequencies, inverse, dtype};
  return heddle_rt_rope(stream, &args, input, at, output);
}

inline heddle_rt_status allToAll(heddle_rt_comm *comm, heddle_rt_stream *stream, const void *input, void *output,
                                 const heddle_rt_all_to_all_shape &shape, heddle_rt_dtype dtype) {
  return heddle_rt_all_to_all(comm, stream, input, output, &shape, dtype);
}

template <int N>
inline heddle_rt_status permute(heddle_rt_comm *comm, heddle_rt_stream *stream, const void *input, void *output,
                                int64_t elements, heddle_rt_dtype dtype, const int32_t (&from)[N]) {
  return heddle_rt_permute(comm, stream, input, output, elements, dtype, from);
}
)";

constexpr StringLiteral kCounts = "kNumCounts", kPlaces = "kNumPlaces";

static SmallVector<rt::ChannelAttr> channelsOf(rt::ProgramOp program) {
  if (!program.getChannels())
    return {};
  return llvm::to_vector(program.getChannels()->getAsRange<rt::ChannelAttr>());
}

/// "pp x dp x tp"
static std::string meshWords(rt::ProgramOp program) {
  return llvm::join(
      llvm::map_range(program.getMesh().getAsRange<rt::AxisAttr>(),
                      [](rt::AxisAttr axis) { return axis.getName(); }),
      " x ");
}

static ArrayAttr axesOf(rt::ProgramOp program,
                        llvm::function_ref<bool(StringAttr)> isWanted) {
  SmallVector<Attribute> axes;
  for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>())
    if (auto name = StringAttr::get(program.getContext(), axis.getName());
        isWanted(name))
      axes.push_back(name);
  return ArrayAttr::get(program.getContext(), axes);
}

/// The axes of the mesh along which groups over `axes` are alike.
static ArrayAttr otherAxes(rt::ProgramOp program, ArrayAttr axes) {
  return axesOf(program, [&](StringAttr name) {
    return llvm::none_of(axes.getAsValueRange<StringAttr>(), [&](StringRef of) {
      return of == name || program.getMirroredAxis(of) == name.getValue();
    });
  });
}

/// Ranks of a group over one axis, or over the mirror of one.
static std::string sizeOn(const ProgramNames &names, StringRef axis) {
  rt::ProgramOp program = names.program;
  if (!program.getMirroredAxis(axis).empty())
    return "2";
  return formatv("p.n[{0}]", names.numbers.sizeOf(axis));
}

/// Place over axes, the last the fastest, as an expression of the places on
/// single axes.
static std::string placeExpression(const ProgramNames &names,
                                   const llvm::StringMap<std::string> &onAxis,
                                   ArrayAttr axes) {
  rt::ProgramOp program = names.program;
  std::string text;
  for (StringRef name : axes.getAsValueRange<StringAttr>()) {
    std::string place = onAxis.lookup(name);
    if (StringRef axis = program.getMirroredAxis(name); !axis.empty())
      place = formatv("({0} >= p.n[{1}] / 2)", onAxis.lookup(axis),
                      names.numbers.sizeOf(axis));
    if (text.empty())
      text = place;
    else
      text = formatv("{0} * {1} + {2}",
                     StringRef(text).contains(' ') ? "(" + text + ")" : text,
                     sizeOn(names, name), place);
  }
  return text.empty() ? "0" : text;
}

/// How many places there are over axes.
static std::string sizeExpression(const ProgramNames &names, ArrayAttr axes) {
  std::string text;
  for (StringRef name : axes.getAsValueRange<StringAttr>())
    text += (text.empty() ? "" : " * ") + sizeOn(names, name);
  return text.empty() ? "1" : text;
}

/// A number that the ranks of a group over `axes`, and no others, have in
/// common.
static std::string groupExpression(const ProgramNames &names,
                                   const llvm::StringMap<std::string> &onAxis,
                                   ArrayAttr axes) {
  rt::ProgramOp program = names.program;
  std::string text = placeExpression(names, onAxis, otherAxes(program, axes));
  // Of mirrored places, the nearer one to the begin stands for both.
  for (StringRef name : axes.getAsValueRange<StringAttr>())
    if (StringRef axis = program.getMirroredAxis(name); !axis.empty())
      text = formatv("({0}) * p.n[{1}] + ({2} < p.n[{1}] / 2 ? {2} : p.n[{1}] "
                     "- 1 - {2})",
                     text, names.numbers.sizeOf(axis), onAxis.lookup(axis));
  return text;
}

/// The axes further in than `axis`.
static ArrayAttr axesBelow(rt::ProgramOp program, StringRef axis) {
  bool isInner = false;
  return axesOf(program, [&](StringAttr name) {
    bool was = isInner;
    isInner |= name.getValue() == axis;
    return was;
  });
}

static void emitNumbers(const ProgramNames &names, llvm::raw_ostream &os) {
  rt::ProgramOp program = names.program;
  const ProgramNumbers &numbers = names.numbers;
  os << formatv("\n// What numbers.bin says. It belongs to this text where it "
                "has the same key.\n"
                "constexpr uint64_t kNumbersKey = {0:x};\n",
                numbers.key());
  os << "\n// Sizes of the mesh, bounds of loops, lengths of rows.\nenum : "
        "int32_t {\n";
  for (const ProgramNumbers::Count &count : numbers.counts)
    os << formatv("  {0}, // {1}\n", count.name, count.comment);
  os << formatv("  {0}\n};\n", kCounts);
  os << "\n// Sizes of arenas; where buffers begin, and behind each its "
        "strides.\nenum : int32_t {\n";
  for (auto [index, arena] :
       llvm::enumerate(program.getArenas().getAsRange<rt::ArenaAttr>())) {
    os << formatv("  // Arena {0} ({1})\n", arena.getName(),
                  stringifyMemoryClass(arena.getMemory()));
    for (const ProgramNumbers::Place &place : numbers.places)
      if (place.arena == int64_t(index))
        os << formatv("  {0} = {1}, // {2}\n", place.name, place.at,
                      place.comment);
  }
  os << formatv("  {0} = {1}\n};\n", kPlaces, numbers.numPlaces);
}

static void emitMembers(StringRef type, ArrayRef<std::string> members,
                        llvm::raw_ostream &os) {
  if (members.empty())
    return;
  os << wrap((type + " *" + llvm::join(members, ", *") + ";").str(), 2) << "\n";
}

static void emitStruct(const ProgramNames &names, llvm::raw_ostream &os) {
  os << "\n// One rank: all its state.\nstruct heddle_program {\n";
  if (!names.context.empty())
    os << "  heddle_rt_context *" << names.context << ";\n";
  emitMembers("heddle_rt_stream", names.streams, os);
  emitMembers("heddle_rt_event",
              llvm::to_vector(llvm::make_second_range(names.events)), os);
  for (const auto &[event, member] : names.eventRows)
    os << "  std::vector<heddle_rt_event *> " << member << ";\n";
  emitMembers("heddle_rt_comm", names.communicators, os);
  for (const auto &channel : channelsOf(names.program))
    os << formatv("  heddle_rt_comm *{0}, *{1}; // from place i over {2} to "
                  "i + {3}, around the end\n",
                  names.channels.lookup(channel.getName()).first,
                  names.channels.lookup(channel.getName()).second,
                  channel.getAxis(), channel.getShift());
  emitMembers("char", names.arenas, os);
  for (const auto &[axes, member] : names.places)
    os << "  int64_t " << member << "; // this rank's place over "
       << llvm::join(cast<ArrayAttr>(axes).getAsValueRange<StringAttr>(), ", ")
       << "\n";
  os << formatv("  int64_t n[{0}], place[{1}];\n", kCounts, kPlaces);
  for (rt::NumbersOp table : names.numbers.tables) {
    // What it is, where that is more than what the program is.
    std::string words = locationWords(table.getLoc());
    if (words == locationWords(rt::ProgramOp(names.program).getLoc()))
      words.clear();
    os << formatv("  std::vector<int32_t> {0};{1}\n",
                  names.tables.lookup(table.getSymName()),
                  words.empty() ? "" : " // " + words);
  }
  os << "};\n";
}

/// The beginning of `create`: what numbers.bin says, and where this rank
/// stands. The names of its places on single axes go to `onAxis`.
static void emitRank(const ProgramNames &names,
                     llvm::StringMap<std::string> &onAxis,
                     llvm::raw_ostream &os) {
  rt::ProgramOp program = names.program;
  ArrayAttr mesh = axesOf(program, [](StringAttr) { return true; });
  os << formatv(R"(
static heddle_rt_status create(heddle_rt_context *context, const void *data, int64_t bytes, heddle_program &p) {{
  Numbers numbers;
  TRY(numbers.open(data, bytes, kNumbersKey));
  numbers.readCounts(p.n);
  int32_t rank = 0, size = 0;
  TRY(heddle_rt_rank(context, &rank, &size));
  if (size != {0}) {{
    heddle_rt_launch_failed("heddle_program_create", "the program is not for this many ranks; its mesh is {1}");
    return HEDDLE_RT_INVALID_ARGUMENT;
  }
)",
                sizeExpression(names, mesh), meshWords(program));
  Namer locals;
  for (StringRef axis : mesh.getAsValueRange<StringAttr>()) {
    std::string local = locals.give((axis + "Place").str());
    ArrayAttr below = axesBelow(program, axis);
    std::string from = sizeExpression(names, below);
    if (below.size() > 1)
      from = "(" + from + ")";
    os << formatv("  [[maybe_unused]] const int64_t {0} = {1} % p.n[{2}];\n",
                  local, below.empty() ? "rank" : "rank / " + from,
                  names.numbers.sizeOf(axis));
    onAxis[axis] = local;
  }
  os << formatv("  numbers.readPlaces({0}, p.place);\n",
                program.getStages() ? onAxis.lookup(*program.getStages())
                                    : "0");
  for (auto [i, table] : llvm::enumerate(names.numbers.tables)) {
    rt::NumbersOp of = table;
    os << formatv("  p.{0} = numbers.readRow({1}, {2});\n",
                  names.tables.lookup(of.getSymName()), i,
                  of.getAxis() ? onAxis.lookup(*of.getAxis()) : "0");
  }
}

/// Communicators, in an order that is the same on all ranks.
static void emitGroups(const ProgramNames &names,
                       const llvm::StringMap<std::string> &onAxis,
                       llvm::raw_ostream &os) {
  rt::ProgramOp program = names.program;
  for (auto [axes, member] :
       llvm::zip(program.getCommunicators().getAsRange<ArrayAttr>(),
                 names.communicators))
    os << wrap(formatv("TRY(heddle_rt_comm_split(context, {0}, {1}, {2}, {3}, "
                       "&p.{4}));",
                       groupExpression(names, onAxis, axes),
                       placeExpression(names, onAxis, axes),
                       sizeExpression(names, axes),
                       stringLiteral(
                           llvm::join(axes.getAsValueRange<StringAttr>(), ",")),
                       member)
                   .str(),
               2)
       << "\n";
  for (rt::ChannelAttr channel : channelsOf(names.program)) {
    StringRef axis = channel.getAxis();
    auto [out, in] = names.channels.lookup(channel.getName());
    os << wrap(formatv("TRY(openChannel(context, rank, {{.axis = {0}, .size = "
                       "int32_t(p.n[{1}]), .below = int32_t({2}), .shift = "
                       "{3}}, &p.{4}, &p.{5}));",
                       stringLiteral(axis), names.numbers.sizeOf(axis),
                       sizeExpression(names, axesBelow(program, axis)),
                       channel.getShift(), out, in)
                   .str(),
               2)
       << "\n";
  }
}

static void emitCreate(const ProgramNames &names, llvm::raw_ostream &os) {
  rt::ProgramOp program = names.program;
  llvm::StringMap<std::string> onAxis;
  emitRank(names, onAxis, os);
  if (!names.context.empty())
    os << "  p." << names.context << " = context;\n";
  for (auto [stream, member] : llvm::zip(
           program.getStreams().getAsRange<rt::StreamAttr>(), names.streams))
    os << formatv(
        "  TRY(heddle_rt_stream_create(context, {0}, {1}, &p.{2}));\n",
        stringLiteral(stream.getName()), int(stream.getHigh()), member);
  for (const auto &[event, member] : names.events)
    os << formatv("  TRY(heddle_rt_event_create(context, {0}, &p.{1}));\n",
                  stringLiteral(event), member);
  for (const ProgramNumbers::EventRow &row : names.numbers.eventRows)
    os << formatv("  TRY(createEvents(context, {0}, p.n[{1}], p.{2}));\n",
                  stringLiteral(row.name), names.numbers.counts[row.count].name,
                  names.eventRows.lookup(row.name));
  emitGroups(names, onAxis, os);
  for (const auto &[axes, member] : names.places)
    os << formatv("  p.{0} = {1};\n", member,
                  placeExpression(names, onAxis, cast<ArrayAttr>(axes)));
  if (!names.arenas.empty())
    os << "  void *memory = nullptr;\n";
  for (auto [i, arena] :
       llvm::enumerate(program.getArenas().getAsRange<rt::ArenaAttr>()))
    os << formatv("  TRY(heddle_rt_alloc(context, HEDDLE_RT_{0}, p.place[{1}], "
                  "{2}, &memory));\n"
                  "  p.{3} = static_cast<char *>(memory);\n",
                  stringifyMemoryClass(arena.getMemory()).upper(),
                  names.numbers.bytesOf(i), stringLiteral(arena.getName()),
                  names.arenas[i]);
  os << "  return HEDDLE_RT_OK;\n}\n";
}

static void emitInterface(const ProgramNames &names, llvm::raw_ostream &os) {
  rt::ProgramOp program = names.program;
  std::string cases;
  for (auto [i, arena] :
       llvm::enumerate(program.getArenas().getAsRange<rt::ArenaAttr>()))
    cases +=
        formatv("  case {0}: // {1}\n    *base = program->{2};\n    "
                "*bytes = program->place[{3}];\n    return "
                "HEDDLE_RT_OK;\n",
                i, arena.getName(), names.arenas[i], names.numbers.bytesOf(i));
  os << formatv(R"(
extern "C" {{

heddle_rt_status heddle_program_create(heddle_rt_context *context, const void *numbers, int64_t bytes,
                                       heddle_program **program) {{
  *program = new (std::nothrow) heddle_program();
  if (!*program)
    return HEDDLE_RT_OUT_OF_MEMORY;
  heddle_rt_status status = create(context, numbers, bytes, **program);
  if (status) {{
    delete *program;
    *program = nullptr;
  }
  return status;
}

heddle_rt_status heddle_program_step(heddle_program *program) {{
  return graph<{0}>("step", HEDDLE_RT_GRAPH_STEP, program->{3}, *program);
}

heddle_rt_status heddle_program_arena(heddle_program *program, int32_t arena, void **base, int64_t *bytes) {{
  switch (arena) {{
{1}  default:
    heddle_rt_launch_failed("heddle_program_arena", "the program has {2} arenas");
    return HEDDLE_RT_INVALID_ARGUMENT;
  }
}

heddle_rt_stream *heddle_program_stream(heddle_program *program) {{ return program->{3}; }

heddle_rt_status heddle_program_destroy(heddle_program *program) {{
  delete program;
  return HEDDLE_RT_OK;
}

} // extern "C"
)",
                names.functions.lookup(program.getEntry()), cases,
                names.arenas.size(), names.streams[0]);
}

FailureOr<StepText> emitStep(rt::ProgramOp program) {
  ProgramNames names(program);
  std::string text;
  llvm::raw_string_ostream os(text);
  os << formatv(
      "// Program {0}, one training step of each rank ({1}). "
      "Generated by heddle.\n//\n"
      "// Compiles with a host compiler and with nvcc; kernels.h has "
      "what it launches,\n// numbers.bin where buffers lie and how "
      "often loops run, tables.bin what the\n// train main knows of "
      "them.\n\n#include \"heddle/Runtime/Channels.h\"\n#include "
      "\"heddle/Runtime/Numbers.h\"\n#include "
      "\"heddle/Runtime/Program.h\"\n\n#include \"kernels.h\"\n\n"
      "#include <new>\n#include <string>\n#include <vector>\n\nusing namespace "
      "heddle;\n",
      program.getSymName(), meshWords(program));
  os << kHelpers;
  emitNumbers(names, os);
  emitStruct(names, os);
  for (rt::FuncOp func : reachableFunctions(program))
    if (failed(FunctionPrinter(names, func, os).print()))
      return failure();
  emitCreate(names, os);
  emitInterface(names, os);
  return StepText{text, names.numbers.encode()};
}

} // namespace heddle::lowering
