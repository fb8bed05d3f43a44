"""Writes FormatTables.h: the values and roundings of reduced formats as the library ml_dtypes has them, which
shares nothing with heddle/Runtime/Formats.h. The tests need the file alone.

    pip install ml_dtypes==0.6.0 && python3 test/runtime/make_format_tables.py

Inputs of a rounding, for each pair of neighbours among a format's numbers that are not negative, in order: the
lower one, what lies halfway, and the floats beside that; then all of these negated (not of e8m0).
For formats of 16 bits a hash of the results of 256 pairs each.
"""
import pathlib

import ml_dtypes
import numpy as np

SMALL = {"E4m3": ml_dtypes.float8_e4m3fn, "E5m2": ml_dtypes.float8_e5m2, "E2m1": ml_dtypes.float4_e2m1fn,
         "E8m0": ml_dtypes.float8_e8m0fnu}
WIDE = {"Bf16": ml_dtypes.bfloat16, "F16": np.float16}
PAIRS_PER_HASH = 256


def values_of(dtype, bits):
    codes = np.arange(2 ** bits, dtype=np.uint16 if bits == 16 else np.uint8)
    return codes.view(dtype).astype(np.float32)


def inputs_of(values, codes):
    """Four floats for each pair of neighbours, as the head of the file says."""
    numbers = values[codes]
    low, high = numbers[:-1], numbers[1:]
    middle = ((low.astype(np.float64) + high.astype(np.float64)) / 2).astype(np.float32)
    inputs = np.stack([low, middle, np.nextafter(middle, np.float32(-np.inf)),
                       np.nextafter(middle, np.float32(np.inf))], axis=1)
    return inputs.reshape(-1)


def rounded(inputs, dtype):
    with np.errstate(over="ignore"):
        return inputs.astype(dtype).view(np.uint16 if np.dtype(dtype).itemsize == 2 else np.uint8)


def finite_codes(values, bits, signed):
    codes = np.arange(2 ** (bits - 1) if signed else 2 ** bits)
    return codes[np.isfinite(values[codes])]


def fnv(words):
    result = 0xcbf29ce484222325
    for word in words:
        for byte in int(word).to_bytes(2, "little"):
            result = ((result ^ byte) * 0x100000001b3) % 2 ** 64
    return result


def array(kind, name, numbers, digits, per_line):
    texts = [f"0x{int(number):0{digits}x}" for number in numbers]
    lines = [", ".join(texts[i:i + per_line]) for i in range(0, len(texts), per_line)]
    return f"inline constexpr {kind} {name}[] = {{\n    " + ",\n    ".join(lines) + "};\n"


def main():
    parts = ["// Made by test/runtime/make_format_tables.py from ml_dtypes; not by hand.\n// clang-format off\n"
             "#ifndef TEST_RUNTIME_FORMATTABLES_H\n#define TEST_RUNTIME_FORMATTABLES_H\n\n#include <cstdint>\n\n"
             "namespace heddle::test {\n"]
    for name, dtype in SMALL.items():
        bits = 4 if name == "E2m1" else 8
        signed = name != "E8m0"
        values = values_of(dtype, bits)
        codes = finite_codes(values, bits, signed)
        if not signed:  # below the least normal float ml_dtypes rounds up
            codes = codes[1:]
        inputs = inputs_of(values, codes)
        if signed:
            inputs = np.concatenate([inputs, -inputs])
        parts.append(f"/// The number of each code, as a float's bits; NaNs as one.\n" +
                     array("uint32_t", f"k{name}Values",
                           np.where(np.isnan(values), 0x7fc00000, values.view(np.uint32)), 8, 10))
        parts.append("/// Codes of the inputs.\n" + array("uint8_t", f"k{name}Rounded", rounded(inputs, dtype), 2, 19))
    for name, dtype in WIDE.items():
        values = values_of(dtype, 16)
        codes = finite_codes(values, 16, True)
        inputs = inputs_of(values, codes)
        results = rounded(np.concatenate([inputs, -inputs]), dtype)
        finite = values[np.isfinite(values)].view(np.uint32)
        step = PAIRS_PER_HASH * 4
        parts.append("/// Hashes of codes of inputs; of the bits of all finite numbers.\n" +
                     array("uint64_t", f"k{name}Hashes",
                           [fnv(results[i:i + step]) for i in range(0, len(results), step)], 16, 5))
        halves = np.stack([finite & 0xffff, finite >> 16], axis=1).reshape(-1)
        parts.append(f"inline constexpr uint64_t k{name}Values = 0x{fnv(halves):016x};\n")
    parts.append("} // namespace heddle::test\n\n#endif\n")
    pathlib.Path(__file__).with_name("FormatTables.h").write_text("\n".join(parts).replace("\n\n}", "\n}"))


main()
