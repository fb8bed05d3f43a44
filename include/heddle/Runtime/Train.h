//===- Train.h - The main of train-host and train-cuda --------------------===//

#ifndef HEDDLE_RUNTIME_TRAIN_H
#define HEDDLE_RUNTIME_TRAIN_H

#ifdef __cplusplus
extern "C" {
#endif

/// Trains the program that is linked in (Program.h), as tables.bin and the
/// command line say; runtime/README.md has the options. Messages go to stderr.
///
/// \return 0 success, 1 the answer is no (the loss is no number, replicas
///         differ, checking mode found a fault), 2 bad usage or input,
///         3 another failure.
int heddle_train_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
