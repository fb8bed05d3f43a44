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

ProgramNames::ProgramNames(rt::ProgramOp program) : program(program) {
  program.walk([&](rt::GroupOp) {
    if (context.empty())
      context = members.give("context");
  });
  for (auto stream : program.getStreams().getAsRange<rt::StreamAttr>())
    streams.push_back(members.give(stream.getName()));
  for (auto axes : program.getCommunicators().getAsRange<ArrayAttr>())
    communicators.push_back(members.give(communicatorWish(axes)));
  for (StringRef event : program.getEvents().getAsValueRange<StringAttr>())
    events.push_back(members.give(event));
  for (auto arena : program.getArenas().getAsRange<rt::ArenaAttr>())
    arenas.push_back(members.give((arena.getName() + "Arena").str()));
  for (rt::FuncOp func : reachableFunctions(program)) {
    functions[func.getSymName()] = globals.give(func.getSymName());
    func.getBody().walk([&](Operation *op) {
      if (auto index = dyn_cast<rt::RankIndexOp>(op);
          index && !places.contains(index.getAxes()))
        places[index.getAxes()] =
            members.give(communicatorWish(index.getAxes()) + "_place");
      if (auto buffer = dyn_cast<rt::BufferOp>(op);
          buffer && !buffer->use_empty())
        addOffset(buffer);
    });
  }
}

void ProgramNames::addOffset(rt::BufferOp buffer) {
  auto key = std::make_tuple(program.getArenaIndex(buffer.getArena()),
                             buffer.getOffset(), buffer.getName().str());
  auto [place, isNew] = offsets.try_emplace(key);
  if (!isNew)
    return;
  std::string strides;
  for (auto [index, stride] :
       llvm::zip(buffer.getIndices(), buffer.getStrides()))
    strides += formatv(", + {0} * {1}", indexWord(index), stride);
  std::string type;
  llvm::raw_string_ostream(type) << buffer.getType();
  StringRef shape = StringRef(type).drop_front(strlen("!rt.buf<")).drop_back();
  place->second.constant = globals.give("k" + upperCamel(buffer.getName()));
  place->second.comment = formatv("{0}: {1}; {2}{3}", buffer.getName(),
                                  buffer.getReason(), shape, strides);
}

std::string ProgramNames::indexWord(Value index) {
  if (auto argument = dyn_cast<BlockArgument>(index)) {
    Operation *owner = argument.getOwner()->getParentOp();
    if (auto loop = dyn_cast<rt::ForOp>(owner))
      return loop.getName().str();
    return cast<StringAttr>(
               cast<rt::FuncOp>(owner).getArgNames()[argument.getArgNumber()])
        .str();
  }
  if (auto place = index.getDefiningOp<rt::RankIndexOp>())
    return "place over " +
           llvm::join(place.getAxes().getAsValueRange<StringAttr>(), ", ");
  return "index";
}

StringRef ProgramNames::offset(rt::BufferOp buffer) const {
  return offsets
      .at(std::make_tuple(
          rt::ProgramOp(program).getArenaIndex(buffer.getArena()),
          buffer.getOffset(), buffer.getName().str()))
      .constant;
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

/// The event of a slot, of several that are used in turn.
template <class... Events>
inline heddle_rt_event *inSlot(int64_t slot, Events *...events) {
  heddle_rt_event *const all[] = {events...};
  return all[slot];
}

inline heddle_rt_status gemm(heddle_rt_stream *stream, const heddle_rt_gemm_args &args, const void *a, const void *b,
                             void *c) {
  return heddle_rt_gemm(stream, &args, a, b, c);
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
                             const double (&frequencies)[N], bool inverse, const void *input, const int32_t *at,
                             void *output) {
  const heddle_rt_rope_args args = {name, positions, heads, 2 * N, frequencies, inverse};
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

static int64_t countRanks(rt::ProgramOp program) {
  int64_t ranks = 1;
  for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>())
    ranks *= axis.getSize();
  return ranks;
}

static std::string meshWords(rt::ProgramOp program) {
  return llvm::join(
      llvm::map_range(
          program.getMesh().getAsRange<rt::AxisAttr>(),
          [](rt::AxisAttr axis) {
            return formatv("{0} {1}", axis.getName(), axis.getSize()).str();
          }),
      " x ");
}

/// Place of `rank` over axes, the last the fastest, as an expression.
static std::string placeExpression(rt::ProgramOp program, ArrayAttr axes) {
  std::string text = "0";
  for (StringRef name : axes.getAsValueRange<StringAttr>()) {
    int64_t size = program.getAxisSize(name), below = 1;
    bool inner = false;
    for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>()) {
      below *= inner ? axis.getSize() : 1;
      inner |= axis.getName() == name;
    }
    if (size == 1)
      continue;
    std::string own =
        formatv("{0} % {1}",
                below == 1 ? "rank" : formatv("rank / {0}", below).str(), size);
    text =
        text == "0" ? own : formatv("({0}) * {1} + {2}", text, size, own).str();
  }
  return text;
}

/// The axes of the mesh that are not among `axes`.
static ArrayAttr otherAxes(rt::ProgramOp program, ArrayAttr axes) {
  SmallVector<Attribute> others;
  for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>()) {
    auto name = StringAttr::get(program.getContext(), axis.getName());
    if (!llvm::is_contained(axes, name))
      others.push_back(name);
  }
  return ArrayAttr::get(program.getContext(), others);
}

static void emitOffsets(const ProgramNames &names, llvm::raw_ostream &os) {
  rt::ProgramOp program = names.program;
  for (auto [index, arena] :
       llvm::enumerate(program.getArenas().getAsRange<rt::ArenaAttr>())) {
    SmallVector<std::pair<StringRef, std::pair<int64_t, StringRef>>> constants;
    for (const auto &[key, place] : names.offsets)
      if (std::get<0>(key) == int64_t(index))
        constants.push_back(
            {place.constant, {std::get<1>(key), place.comment}});
    os << formatv("\n// Arena {0} ({1}), {2} bytes: where buffers begin.\n",
                  arena.getName(), stringifyMemoryClass(arena.getMemory()),
                  arena.getBytes());
    if (constants.empty())
      continue;
    os << "enum : int64_t {\n";
    for (const auto &[constant, place] : constants)
      os << formatv("  {0} = {1}, // {2}\n", constant, place.first,
                    place.second);
    os << "};\n";
  }
}

static void emitMembers(StringRef type, ArrayRef<std::string> members,
                        llvm::raw_ostream &os) {
  if (members.empty())
    return;
  os << "  " << type << " *" << llvm::join(members, ", *") << ";\n";
}

static void emitStruct(const ProgramNames &names, llvm::raw_ostream &os) {
  os << "\n// One rank: all its state.\nstruct heddle_program {\n";
  if (!names.context.empty())
    os << "  heddle_rt_context *" << names.context << ";\n";
  emitMembers("heddle_rt_stream", names.streams, os);
  emitMembers("heddle_rt_event", names.events, os);
  emitMembers("heddle_rt_comm", names.communicators, os);
  emitMembers("char", names.arenas, os);
  for (const auto &[axes, member] : names.places)
    os << "  int64_t " << member << "; // this rank's place over "
       << llvm::join(cast<ArrayAttr>(axes).getAsValueRange<StringAttr>(), ", ")
       << "\n";
  os << "};\n";
}

static void emitCreate(const ProgramNames &names, llvm::raw_ostream &os) {
  rt::ProgramOp program = names.program;
  os << formatv(R"(
static heddle_rt_status create(heddle_rt_context *context, heddle_program &p) {{
  int32_t rank = 0, size = 0;
  TRY(heddle_rt_rank(context, &rank, &size));
  if (size != {0}) {{
    heddle_rt_launch_failed("heddle_program_create", "the program is for {0} ranks ({1}); start as many");
    return HEDDLE_RT_INVALID_ARGUMENT;
  }
)",
                countRanks(program), meshWords(program));
  if (!names.context.empty())
    os << "  p." << names.context << " = context;\n";
  for (auto [stream, member] : llvm::zip(
           program.getStreams().getAsRange<rt::StreamAttr>(), names.streams))
    os << formatv(
        "  TRY(heddle_rt_stream_create(context, {0}, {1}, &p.{2}));\n",
        stringLiteral(stream.getName()), int(stream.getHigh()), member);
  for (auto [event, member] : llvm::zip(
           program.getEvents().getAsValueRange<StringAttr>(), names.events))
    os << formatv("  TRY(heddle_rt_event_create(context, {0}, &p.{1}));\n",
                  stringLiteral(event), member);
  for (auto [axes, member] :
       llvm::zip(program.getCommunicators().getAsRange<ArrayAttr>(),
                 names.communicators))
    os << formatv(
        "  TRY(heddle_rt_comm_split(context, {0}, {1}, {2}, {3}, &p.{4}));\n",
        placeExpression(program, otherAxes(program, axes)),
        placeExpression(program, axes), program.getGroupSize(axes),
        stringLiteral(llvm::join(axes.getAsValueRange<StringAttr>(), ",")),
        member);
  for (const auto &[axes, member] : names.places)
    os << formatv("  p.{0} = {1};\n", member,
                  placeExpression(program, cast<ArrayAttr>(axes)));
  if (!names.arenas.empty())
    os << "  void *memory = nullptr;\n";
  for (auto [arena, member] :
       llvm::zip(program.getArenas().getAsRange<rt::ArenaAttr>(), names.arenas))
    os << formatv(
        "  TRY(heddle_rt_alloc(context, HEDDLE_RT_{0}, {1}, {2}, &memory));\n"
        "  p.{3} = static_cast<char *>(memory);\n",
        stringifyMemoryClass(arena.getMemory()).upper(), arena.getBytes(),
        stringLiteral(arena.getName()), member);
  os << "  return HEDDLE_RT_OK;\n}\n";
}

static void emitInterface(const ProgramNames &names, llvm::raw_ostream &os) {
  rt::ProgramOp program = names.program;
  std::string cases;
  for (auto [i, arena] :
       llvm::enumerate(program.getArenas().getAsRange<rt::ArenaAttr>()))
    cases += formatv("  case {0}: // {1}\n    *base = program->{2};\n    "
                     "*bytes = {3};\n    return HEDDLE_RT_OK;\n",
                     i, arena.getName(), names.arenas[i], arena.getBytes());
  os << formatv(R"(
extern "C" {{

heddle_rt_status heddle_program_create(heddle_rt_context *context, heddle_program **program) {{
  *program = new (std::nothrow) heddle_program();
  if (!*program)
    return HEDDLE_RT_OUT_OF_MEMORY;
  heddle_rt_status status = create(context, **program);
  if (status) {{
    delete *program;
    *program = nullptr;
  }
  return status;
}

heddle_rt_status heddle_program_step(heddle_program *program) {{ return {0}(*program); }

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

FailureOr<std::string> emitStep(rt::ProgramOp program) {
  ProgramNames names(program);
  std::string text;
  llvm::raw_string_ostream os(text);
  os << formatv("// Program {0}, one training step of each of {1} ranks ({2}). "
                "Generated by heddle.\n//\n"
                "// Compiles with a host compiler and with nvcc; kernels.h has "
                "what it launches,\n// tables.bin what "
                "lies where in the arenas.\n\n#include "
                "\"heddle/Runtime/Program.h\"\n\n#include \"kernels.h\"\n\n"
                "#include <new>\n\nusing namespace heddle;\n",
                program.getSymName(), countRanks(program), meshWords(program));
  os << kHelpers;
  emitOffsets(names, os);
  emitStruct(names, os);
  for (rt::FuncOp func : reachableFunctions(program))
    if (failed(FunctionPrinter(names, func, os).print()))
      return failure();
  emitCreate(names, os);
  emitInterface(names, os);
  return text;
}

} // namespace heddle::lowering
