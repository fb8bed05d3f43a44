//===- Calibrate.cpp - heddle calibrate: times of this machine ------------===//

#include "tools/heddle/Command.h"
#include "tools/heddle/Measure.h"

#include "heddle/Support/Files.h"

namespace cl = llvm::cl;
using namespace heddle;
using namespace heddle::tool;

static cl::SubCommand
    calibrate("calibrate",
              "measures kernels and collectives of this machine, for plans");
static cl::opt<std::string> output("o", cl::Required, cl::value_desc("file"),
                                   cl::desc("where the times are written; a "
                                            "cluster.yaml names this file: "
                                            "device: {tables: FILE}"),
                                   cl::sub(calibrate));
static cl::opt<unsigned>
    ranks("ranks", cl::init(2), cl::value_desc("N"),
          cl::desc("ranks that compute at once, and the most that collectives "
                   "are measured over; default 2"),
          cl::sub(calibrate));
static cl::opt<unsigned> shrink("shrink", cl::init(1), cl::Hidden,
                                cl::desc("measure sizes smaller by this"),
                                cl::sub(calibrate));

static int runCalibrate() {
  if (ranks < 1 || ranks > 1024)
    return refuse(Error{fmt::format("--ranks: found {}, expected 1 to 1024",
                                    ranks.getValue())});
  if (shrink < 1 || shrink > 64)
    return refuse(Error{fmt::format("--shrink: found {}, expected 1 to 64",
                                    shrink.getValue())});
  MeasureOptions options;
  options.ranks = ranks;
  options.shrink = shrink;
  Result<Device> device = measureHost(options);
  if (!device)
    return refuse(device.error(), kInternal);
  if (Result<void> done =
          writeFile(output.getValue(), writeDeviceFile(*device));
      !done)
    return refuse(done.error());
  fmt::print("{}: {} products, {} attentions, {} kernels of memory, {} "
             "collectives; fp32 {:.3g} GFLOP/s, bf16 {:.3g}, memory {:.3g} "
             "GB/s per rank of {}\n",
             output.getValue(), device->measured->products.size(),
             device->measured->attention.size(),
             device->measured->memory.size(),
             device->measured->collectives.size(), device->peak("fp32") / 1e9,
             device->peak("bf16") / 1e9, device->memoryBytesPerSecond / 1e9,
             options.ranks);
  return kDone;
}

Command heddle::tool::calibrateCommand() { return {&calibrate, runCalibrate}; }
