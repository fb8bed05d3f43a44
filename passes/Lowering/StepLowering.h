//===- StepLowering.h - @step => rt, shared by its files --------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_STEPLOWERING_H
#define HEDDLE_PASSES_LOWERING_STEPLOWERING_H

#include "passes/Lowering/LowerStep.h"
#include "passes/Lowering/StageNumbers.h"
#include "passes/Lowering/StatePlaces.h"

#include "llvm/ADT/StringSet.h"

namespace heddle::lowering {

/// Lowers `@step`: states, calls and results (LowerStep.cpp), loops
/// (LowerLoops.cpp), layers that differ (LowerChoices.cpp), rows of elements
/// and buckets of them (LowerBuckets.cpp), slots of a schedule and what passes
/// between stages (LowerStages.cpp).
class StepLowering {
public:
  StepLowering(Program &program, const llvm::StringMap<Signature> &signatures,
               mlir::OpBuilder builder)
      : program(program), signatures(signatures),
        lowering(program, builder, "step"), states(program, lowering) {}

  llvm::LogicalResult run(mlir::func::FuncOp step);

private:
  /// What lies on the host: a stack there, of saved values or of states, and
  /// the rows on the device that these pass through on the way, used in turn.
  struct Offloaded {
    mlir::Value value; ///< forward's, or what backward or the optimizer gets
    Family stack, rows;
  };

  /// What a loop brings for later iterations while one computes: parameters
  /// that are gathered, and saved values from the host.
  struct Prefetch {
    llvm::SmallVector<dist::AllGatherOp> gathers;
    llvm::SmallVector<Family> slots; ///< of each: depth + 1 rows, used in turn
    std::vector<Offloaded> fetches;
    /// Whether compute reads rows of these last; else they go to the host, and
    /// what comes next is behind that. The first are behind all there was.
    bool freesRows = false;
    int64_t depth = 0;             ///< iterations ahead; 0: none
    std::string gathered, fetched; ///< events; "": none
    mlir::Value chunk;             ///< whose layers the loop is over; null: all
  };

  /// Iterations of a loop, begin <= index < end: numbers or values.
  struct Turns {
    mlir::OpFoldResult begin, end;
  };

  struct Loop {
    llvm::SmallVector<Family> carried, stacks;
    llvm::SmallVector<bool> saved; ///< the carried value is an entry of a stack
    std::vector<Offloaded> offloaded;
    std::string stored; ///< event: a row is on the host
  };

  //===--------------------------------------------------------------------===//
  // Places
  //===--------------------------------------------------------------------===//

  mlir::OpBuilder &builder() { return lowering.getBuilder(); }

  mlir::Value entry(const Family &family, mlir::Value index, int64_t shift = 0);

  static mlir::RankedTensorType tensorOf(mlir::Type type);

  void bindInput(mlir::BlockArgument argument);

  void bindOutput(mlir::func::FuncOp step, unsigned index, mlir::Value value);

  mlir::Value stateEntry(llvm::StringRef name, mlir::Value index);

  static bool sameBuffer(mlir::Value a, mlir::Value b);

  void moveTo(mlir::Location location, mlir::Value from, mlir::Value to);

  //===--------------------------------------------------------------------===//
  // Streams: buckets have their own
  //===--------------------------------------------------------------------===//

  std::string newEvent(llvm::StringRef what);

  void order(llvm::StringRef event, llvm::StringRef before,
             llvm::StringRef after);

  /// Work queued from here on sees what the communication stream has done.
  void join();

  /// Joins where an op touches states that the communication stream works on.
  /// A gradient of a layer is added to in that layer alone.
  void joinBefore(mlir::Operation &op);

  /// Queues a bucket's work on the communication stream, behind what has been
  /// queued so far.
  llvm::LogicalResult lowerBucket(dist::BucketOp bucket);

  /// The communication stream works on an object of memory.
  void noteMoved(llvm::StringRef object);
  llvm::LogicalResult lowerTogether(llvm::ArrayRef<mlir::Operation *> ops);

  /// The one range that all-reduces in place of a whole bucket are; else null.
  mlir::Value wholeBucket(llvm::ArrayRef<mlir::Operation *> ops);

  //===--------------------------------------------------------------------===//
  // Blocks
  //===--------------------------------------------------------------------===//

  /// Gives values the places that they end in, before they are computed.
  void prepare(mlir::Block &block);

  /// Whether a value has one use, beside where it is made, and no place yet.
  bool isFree(mlir::Value value);

  /// What is stored is computed where it is stored. What is gathered for that
  /// from runs is computed in the part of the whole that is this rank's.
  void prepareStore(transformer::StoreOp store);

  /// Gradients that are cast to be reduced go through one range of memory, each
  /// bucket's behind those of the bucket before: all on one stream.
  void placeCasts(dist::BucketOp bucket);

  /// A value that becomes a row begins one; a reduced sum of gradients stays
  /// where the sum is.
  void prepareRow(dist::ToRowOp row);

  void beginRow(dist::ToRowOp row);

  /// Zeros behind the values that an op makes as rows, just before it: earlier
  /// the row would be held for nothing. In a bucket, before all of it.
  void zeroTails(mlir::Operation *maker);

  /// Rows and tensors are two ways to see one place, a run is a part of it.
  llvm::LogicalResult lowerRow(dist::ToRowOp op);

  llvm::LogicalResult lowerFromRow(dist::FromRowOp op);

  /// Whether an op works on a row of elements.
  static bool ofRow(mlir::Operation *op);

  llvm::LogicalResult lowerSlice(dist::SliceOp op);

  /// What a row is reduced to, or gathered into, has its place in the row.
  void placeResult(mlir::Operation *op);

  llvm::LogicalResult lowerBlock(mlir::Block &block);

  llvm::LogicalResult lowerOp(mlir::Operation &op);

  llvm::LogicalResult lowerOne(mlir::Operation &op);

  llvm::LogicalResult lowerZero(transformer::ZeroOp zero);

  /// The call that adds its result to a state itself, or null.
  const Signature *accumulatingCall(mlir::Value value);

  llvm::LogicalResult lowerAccumulate(transformer::AccumulateOp sum);

  //===--------------------------------------------------------------------===//
  // Layers that differ in what they save
  //===--------------------------------------------------------------------===//

  llvm::LogicalResult lowerCall(mlir::Operation *call);
  /// A table with a number per layer that a place holds, of each place.
  void makeLayerTable(llvm::StringRef name, int64_t layers,
                      llvm::function_ref<std::vector<int64_t>(
                          llvm::ArrayRef<int64_t> layersOfChunk)>
                          numbers);
  /// Lets the stack of what only some layers' functions make have room for
  /// those alone.
  void saveSomeLayers(Family &family, mlir::Value collected, mlir::Value stack);

  //===--------------------------------------------------------------------===//
  // Loops
  //===--------------------------------------------------------------------===//

  void planLoop(transformer::LoopOp loop);
  /// What a loop carries behind its last iteration, where each saves it.
  mlir::Value lastEntry(transformer::LoopOp loop, const Family &family);

  /// Whether `next`, what the body makes of `carried`, may be written over it.
  bool mayReplace(mlir::BlockArgument carried, mlir::Value next);

  llvm::LogicalResult lowerLoop(transformer::LoopOp loop);

  /// All iterations. With prefetch the last ones are apart, which gather
  /// nothing for later ones; of a chunk that has fewer layers than are gathered
  /// ahead, these are all.
  llvm::LogicalResult lowerTurns(transformer::LoopOp loop, const Loop &plan);

  /// Some iterations of a loop, in its order.
  llvm::LogicalResult lowerIterations(transformer::LoopOp loop,
                                      const Loop &plan, Turns turns,
                                      const Prefetch &prefetch,
                                      bool gathersNext);

  /// Where an iteration saves the value that the stack collects.
  mlir::Value savedEntry(const Loop &plan, unsigned stack, mlir::Value index);

  /// Places of the body's arguments, and of what it yields.
  void bindBody(transformer::LoopOp loop, const Loop &plan, mlir::Value index);

  Prefetch planPrefetch(transformer::LoopOp loop);
  void planGathers(transformer::LoopOp loop, Prefetch &prefetch);
  /// The place among rows used in turn of what is of iteration `index`.
  mlir::Value slotOf(int64_t rows, mlir::Value index);
  /// What is gathered from here on may lie where what has been computed so far
  /// read.
  void freeSlots(const Prefetch &prefetch, bool begins);
  /// Gathers for the first iterations, before the loop.
  void gatherFirst(transformer::LoopOp loop, const Prefetch &prefetch,
                   Turns turns);
  /// Queues what iteration `index` needs to be gathered.
  void gatherFor(const Prefetch &prefetch, mlir::Value index);
  /// Waits for what iteration `index` needs, then lets a later one's be
  /// gathered.
  void beginIteration(transformer::LoopOp loop, const Prefetch &prefetch,
                      mlir::Value index, bool gathersNext);

  //===--------------------------------------------------------------------===//
  // On the host
  //===--------------------------------------------------------------------===//

  /// The state, if it lies on the host; else null.
  transformer::StateOp stateOnHost(llvm::StringRef name);
  /// Rows on the device that the entries of a state there take in turn; one
  /// where it is not of layers.
  Family rowsOfState(transformer::StateOp state);
  /// Whether one of the loads or stores next to this one is of such a state.
  template <class Access>
  bool isOnHostBeside(Access access, bool behind);
  /// Brings a state that is of no layer.
  void fetchState(transformer::LoadOp load);
  /// Queues the way to the host of what is stored.
  void sendState(transformer::StoreOp store);
  /// Rows on the device of each layered value on the host.
  int64_t hostRows();
  /// Lets the stacks that the plan names lie on the host.
  void planOffload(transformer::LoopOp loop, Loop &plan);
  /// What `loop` reads of them, one iteration ahead at least.
  void planFetches(transformer::LoopOp loop, Prefetch &prefetch);
  /// All rows may be written.
  void releaseRows(const Loop &plan);
  /// Waits until what the row of iteration `index` held is on the host.
  void awaitRow(const Loop &plan, mlir::Value index);
  /// Queues the way to the host of what iteration `index` has saved.
  void storeRows(transformer::LoopOp loop, const Loop &plan, mlir::Value index);
  /// Queues the way back of what iteration `index` reads.
  void fetchFor(const Prefetch &prefetch, mlir::Value index);
  /// Waits until it is there, where the body then finds it.
  void awaitFetched(const Prefetch &prefetch, mlir::Value index);
  /// The plan's names must be those of values that layers save.
  llvm::LogicalResult checkOffload(mlir::func::FuncOp step);

  //===--------------------------------------------------------------------===//
  // Stages
  //===--------------------------------------------------------------------===//

  /// Names of what both directions have, activations first.
  static constexpr llvm::StringRef kDirections[] = {"activation", "gradient"};

  /// What the slots of a run share.
  struct Slots {
    /// What is received, and what is sent, of one direction.
    struct Landing {
      llvm::SmallVector<Family> received, outs;
      int64_t size = 0; ///< buffers that receive, at the place with most
    };
    llvm::SmallVector<Family> homes; ///< of what slots carry
    llvm::StringMap<Landing> landings;
    llvm::DenseMap<mlir::Value, Family> saved;
    /// Of saved values, as forward yields them, and as backward does.
    llvm::SmallVector<Family> order, kept;
    /// Numbers of the slot whose case is being lowered.
    mlir::Value slot, uses, chunk, microBatch, landing, out;
    llvm::StringMap<mlir::Value> sets; ///< by pool
  };

  /// Reads the table of a step that runs slots.
  llvm::LogicalResult beginStages(mlir::func::FuncOp step);
  std::string channelName(int64_t shift);
  void addChannel(int64_t shift);

  /// This place's entry of a table, which is made where it is not there yet.
  mlir::Value number(llvm::StringRef table, mlir::Value index);
  /// How many layers there are, or which one.
  void lowerNumber(mlir::Operation &op);
  mlir::Value constant(int64_t value);
  mlir::Value sum(mlir::Value a, mlir::Value b);
  /// Of a number that is to have a name in the text.
  mlir::Location named(llvm::StringRef name);
  /// One of the numbers in an entry.
  mlir::Value part(const PackedNumber &number, mlir::Value entry);
  void inCases(mlir::Value selector,
               llvm::ArrayRef<std::pair<int64_t, llvm::StringRef>> cases,
               llvm::function_ref<void(int64_t)> fill);
  /// What only slots of a kind do.
  void ifUses(const PackedNumber &flag, llvm::StringRef label,
              llvm::function_ref<void()> fill);
  /// Records event `slot` of `count`, or waits for it.
  void onEvent(bool records, llvm::StringRef name, mlir::Value slot,
               int64_t count, llvm::StringRef stream);
  void releaseAll(const std::string &event, int64_t count,
                  llvm::StringRef stream = kCompute);

  /// Lowers what need not run: what communication does stays to be waited for,
  /// also where this has waited.
  void mayRun(llvm::function_ref<void()> lower);
  mlir::Value selectorOf(stage::WhereOp where);
  llvm::LogicalResult lowerWhere(stage::WhereOp where);
  llvm::LogicalResult lowerBranch(stage::WhereOp where, mlir::Region &region);
  /// Whether a value can be computed where it is wanted.
  static bool mayBeMadeAt(mlir::Value value);

  llvm::LogicalResult lowerRun(stage::RunOp run);
  void makeLandings(stage::RunOp run);
  llvm::LogicalResult lowerSlot(stage::RunOp run, mlir::Value slot);
  llvm::LogicalResult lowerDirection(stage::RunOp run, bool backward);
  llvm::LogicalResult lowerWeight(stage::RunOp run);
  void bindYielded(stage::RunOp run, stage::YieldOp yield, bool backward);
  void endSlot(const Slots::Landing &landing, llvm::StringRef direction);
  /// Where a tensor is saved that one end of the chain has.
  Family savedFamily(mlir::Value value, stage::Part part);
  /// Gives a family one set of entries, of so many at each place, per number of
  /// a pool.
  void inPool(Family &family, llvm::StringRef pool,
              llvm::ArrayRef<int64_t> entries);
  mlir::Value setOf(llvm::StringRef pool);
  /// How long the entries of a stack are needed: until the weight gradients,
  /// until the input gradient, or from there.
  llvm::StringRef poolOf(mlir::Value stack);
  /// A set has room for the layers of any chunk of the place, and so many more.
  void setOfChunk(Family &family, mlir::Value stack, int64_t more);
  void keepSaved(stage::YieldOp yield, llvm::SmallVectorImpl<Family> &kept);
  void bindSaved(mlir::Block::BlockArgListType arguments,
                 llvm::ArrayRef<Family> saved);

  void lowerTransfers(mlir::Value batch);
  void forTransfers(mlir::Value begin, mlir::Value end,
                    llvm::function_ref<void(mlir::Value slot, int64_t type,
                                            mlir::Value transfer)>
                        each);
  void transferOver(mlir::Value slot, bool sends, bool gradient,
                    mlir::Value channel);
  /// Which buffer, of several, a transfer is of.
  mlir::Value bufferOf(mlir::Value slot, bool sends);
  int64_t countOf(bool sends, llvm::StringRef direction);
  llvm::LogicalResult lowerSumEnds(stage::SumEndsOp op);

  Program &program;
  const llvm::StringMap<Signature> &signatures;
  BlockLowering lowering;
  StatePlaces states;
  llvm::DenseMap<mlir::Value, Family> stacks;
  llvm::StringMap<Family> hostRowsOf; ///< by the name of the stack or state
  bool sendsStates = false;           ///< to the host
  llvm::StringSet<> offloadedValues;  ///< by name, those that were found
  llvm::DenseMap<mlir::Value, mlir::Value> indices;
  llvm::DenseMap<mlir::Operation *, Loop> loops;
  /// Positions of layers among those that save something, by table, iteration
  /// and block.
  std::map<std::tuple<std::string, void *, mlir::Block *>, mlir::Value>
      positions;
  /// Places among rows used in turn, by their number, iteration and block.
  std::map<std::tuple<int64_t, void *, mlir::Block *>, mlir::Value> rowNumbers;
  /// Rows longer than the value they begin with, by what makes it.
  llvm::DenseMap<mlir::Operation *,
                 llvm::SmallVector<std::pair<dist::ToRowOp, mlir::Value>>>
      rowsWithTail;
  llvm::SmallVector<mlir::Value> outputs;
  bool communicating = false;  ///< compute has not waited for it
  bool movesResults = false;   ///< of calls
  bool computeAhead = true;    ///< of what communication has waited for
  llvm::StringSet<> moving;    ///< objects of memory
  llvm::StringSet<> movedEver; ///< in this step
  llvm::DenseSet<mlir::Operation *> ahead; ///< gathers that are done already
  /// Of a step that runs slots.
  std::optional<stage::StageTable> stages;
  std::unique_ptr<StageNumbers> numbers;
  Slots slots;
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_STEPLOWERING_H
