//===- CollectiveTable.h - Measured times inside a node ---------*- C++ -*-===//
//
// Written by tools/calibration/fit_collectives.py from
// validation/nccl_h100.csv: NCCL 2.23 and 2.27 on an HGX H100 (aiconfigurator),
// and of the all-reduce over 8 the log of NVIDIA/dgxc-benchmarking.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_LIB_COST_COLLECTIVETABLE_H
#define HEDDLE_LIB_COST_COLLECTIVETABLE_H

#include <span>

namespace heddle::detail {

inline constexpr double firstBytes = 512;
/// Per device and direction, of the machines that were measured.
inline constexpr double measuredLink = 450e9;

/// Microseconds at 512 B, 1 KiB, ...
inline constexpr double gather2[] = {
    5.6307, 5.6307, 5.6307, 5.7478, 6.3812, 6.6594, 6.7813,
    6.8158, 7.3644, 7.767,  8.9497, 11.567, 17.378, 27.201,
    36.888, 56.536, 93.922, 161.32, 295.47, 552.33, 1051.7};
inline constexpr double gather4[] = {
    7.651,  7.651,  7.651,  7.8204, 7.8204, 8.8563, 8.9234,
    9.2714, 9.3251, 9.6837, 11.299, 14.006, 19.886, 37.824,
    46.261, 67.209, 110.52, 192.39, 352.35, 664.84, 1275.1};
inline constexpr double gather8[] = {
    10.362, 10.455, 11.398, 11.398, 11.663, 11.881, 13.561,
    13.855, 13.875, 14.568, 14.775, 17.965, 23,     34.418,
    44.902, 69.449, 124.95, 210.28, 392.49, 735.42, 1408.1};
inline constexpr double reduce2[] = {
    6.3236, 6.4674, 6.4674, 6.6065, 7.1185, 7.3114, 7.5684,
    7.6399, 7.8802, 9.2095, 11.21,  15.331, 28.721, 34.052,
    48.468, 82.182, 146.04, 258.82, 476.11, 893.65, 1699.5};
inline constexpr double reduce4[] = {
    9.6443, 9.6443, 9.8172, 9.8874, 10.157, 11.292, 11.435,
    11.71,  11.838, 12.085, 15.272, 19.298, 29.08,  40.743,
    62.23,  104.35, 176.3,  330.1,  621.11, 1198.1, 2318.9};
inline constexpr double reduce8[] = {
    16.7,  16.94,  17.14, 19.421, 19.421, 19.421, 19.421, 19.54, 19.89,
    20.43, 20.66,  27.37, 42.21,  54.19,  83.04,  123.8,  199.3, 324.7,
    586.4, 1112.5, 2151,  4029.4, 7939.1, 15749,  31307,  62648};
inline constexpr double exchange2[] = {
    6.257,  6.3756, 6.5703, 6.7649, 7.2843, 8.0075, 8.9111,
    10.644, 11.99,  12.13,  13.084, 14.475, 16.191, 21.647,
    32.661, 55.209, 81.894, 143.61, 268.94, 505.21, 975.62};
inline constexpr double exchange4[] = {
    6.774,  7.7574, 7.7574, 7.7574, 7.7574, 8.4015, 8.4051,
    9.7215, 11.651, 12.566, 13.627, 15.995, 18.548, 24.603,
    37.569, 66.042, 109.17, 186.96, 341.21, 643.6,  1234.2};
inline constexpr double exchange8[] = {
    8.3837, 8.4573, 9.8936, 9.8936, 9.8936, 9.8936, 10.781,
    11.309, 11.309, 13.034, 13.895, 16.169, 20.274, 30.175,
    41.643, 72.669, 125.57, 215.87, 401.35, 761.3,  1476.4};
inline constexpr double scatter2[] = {
    5.3956, 5.3956, 5.7332, 5.8372, 6.2394, 6.5409, 6.7219,
    6.8456, 7.0008, 7.6894, 8.7745, 11.163, 16.658, 24.641,
    34.039, 54.876, 99.682, 175.22, 322.65, 607.46, 1122.9};
inline constexpr double scatter4[] = {
    7.2772, 7.7184, 7.7184, 7.9799, 7.9799, 8.4006, 8.5566,
    8.8011, 8.8011, 8.9296, 10.568, 12.53,  18.305, 35.429,
    41.272, 62.479, 108.84, 198.43, 363.74, 690.79, 1326.2};
inline constexpr double scatter8[] = {
    10.342, 10.465, 11.253, 11.253, 11.604, 11.604, 12.5,
    12.5,   12.5,   13.045, 13.045, 15.567, 19.756, 31.074,
    44.182, 70.774, 120.24, 205.26, 392.48, 734.55, 1418.3};

/// Over 2, 4 and 8 devices.
using Rows = std::span<const double>[3];
inline constexpr Rows gathers = {gather2, gather4, gather8};
inline constexpr Rows reductions = {reduce2, reduce4, reduce8};
inline constexpr Rows exchanges = {exchange2, exchange4, exchange8};
inline constexpr Rows scatters = {scatter2, scatter4, scatter8};

} // namespace heddle::detail

#endif // HEDDLE_LIB_COST_COLLECTIVETABLE_H
