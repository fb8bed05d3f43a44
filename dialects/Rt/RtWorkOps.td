#ifndef HEDDLE_RT_WORK_OPS
#define HEDDLE_RT_WORK_OPS

// Included by RtOps.td: work queued on streams, and events.

class Rt_WorkOp<string mnemonic, list<Trait> traits = []> : Rt_Op<mnemonic, !listconcat(traits, [
    DeclareOpInterfaceMethods<Rt_WorkOpInterface, ["getAccesses"]>])> {
  let hasVerifier = 1;
}

def Rt_GemmOp : Rt_WorkOp<"gemm"> {
  let summary = "C = alpha op(A) op(B) + beta C";
  let description = [{
    Row-major matrices: op(A) is m x k, op(B) k x n, C m x n; op is the
    transpose where it is written. Leading dimensions are the elements from one
    row to the next of the matrix as it lies in memory. With `batch`, that many
    products, each operand `stride_*` elements further. Sums are in fp32.

    Constraints: (C1) sizes are 1 to 2^53, a leading dimension at least the
    length of its rows, strides not negative, batch at least 1; (C2) every
    operand holds what is read or written of it; (C3) A and B have the same
    float type, C that type or f32; or A and B have 8 bits, or 4, C bf16 or f32;
    (C4) products of a batch do not write the same elements; (C5) the stream is
    one of the program's; (C6) there are two scales where A and B are codes,
    and else none: f32 numbers, by which the sum of products is multiplied, or
    with `blocks` [x, y, length] one of each block, f32 or both f8E8M0FNU, of x
    rows of op(A), y columns of op(B) and `length` numbers that are summed over,
    without gaps; then A lies as it is, B is transposed, and batch is 1. Codes of
    4 bits have blocks with scales of f8E4M3FN, and two f32 numbers behind these,
    by which the sum is multiplied.

    ```mlir
    rt.gemm "block.up" %h = %x * %w transpose_b on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xf32>, !rt.buf<4x8xf32>, !rt.buf<16x8xf32>
    rt.gemm "block.up" %u = %codes * %weight transpose_b scaled %s, %t : !rt.buf<f32>, !rt.buf<f32> on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<16x8xf8E4M3FN>
    rt.gemm "block.up" %u = %codes * %weight transpose_b scaled %many, %few : !rt.buf<4x2xf32>, !rt.buf<2x2xf32> blocks [1, 8, 4] on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<16x8xf8E4M3FN>
    rt.gemm "block.up" %u = %four * %weight transpose_b scaled %of_x, %of_w, %s, %t : !rt.buf<4x1xf8E4M3FN>, !rt.buf<1x1xf8E4M3FN>, !rt.buf<f32>, !rt.buf<f32> blocks [1, 16, 16] on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xbf16>, !rt.buf<4x8xf4E2M1FN>, !rt.buf<16x8xf4E2M1FN>
    rt.gemm "block.scores" %s = %q * %q transpose_b on "compute" m 4 n 4 k 8 lda 16 ldb 16 ldc 4 alpha 5.000000e-01 : f32 batch 2 stride_a 8 stride_b 8 stride_c 16 : !rt.buf<2x4x4xf32>, !rt.buf<4x2x8xf32>, !rt.buf<4x2x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$c, Rt_Buf:$a, Rt_Buf:$b, Variadic<Rt_Buf>:$scales, StrAttr:$stream,
                       Rt_Int:$m, Rt_Int:$n, Rt_Int:$k, Rt_Int:$lda, Rt_Int:$ldb, Rt_Int:$ldc,
                       UnitAttr:$transpose_a, UnitAttr:$transpose_b,
                       DefaultValuedAttr<F32Attr, "1.0f">:$alpha,
                       DefaultValuedAttr<F32Attr, "0.0f">:$beta,
                       DefaultValuedAttr<Rt_Int, "1">:$batch,
                       DefaultValuedAttr<Rt_Int, "0">:$stride_a,
                       DefaultValuedAttr<Rt_Int, "0">:$stride_b,
                       DefaultValuedAttr<Rt_Int, "0">:$stride_c,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$blocks);
  let assemblyFormat = [{
    $label $c `=` $a (`transpose_a` $transpose_a^)? `*` $b (`transpose_b` $transpose_b^)?
    (`scaled` $scales^ `:` type($scales))? (`blocks` $blocks^)? `on` $stream `m` $m `n` $n `k` $k `lda` $lda `ldb` $ldb `ldc` $ldc
    (`alpha` $alpha^ `:` `f32`)? (`beta` $beta^ `:` `f32`)?
    (`batch` $batch^)? (`stride_a` $stride_a^)? (`stride_b` $stride_b^)? (`stride_c` $stride_c^)?
    attr-dict `:` custom<Buf>(type($c)) `,` custom<Buf>(type($a)) `,` custom<Buf>(type($b))
  }];
}

def Rt_AmaxOp : Rt_WorkOp<"amax"> {
  let summary = "The largest magnitude of a buffer";
  let description = [{
    Constraints: (C1) the input is f32, bf16 or f16 without gaps, the output one
    f32; (C2) the stream is one of the program's.

    ```mlir
    rt.amax "block.n2" %x -> %most on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<f32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Rt_Buf:$output, StrAttr:$stream);
  let assemblyFormat = "$label $input `->` $output `on` $stream attr-dict `:` custom<Buf>(type($input)) `->` custom<Buf>(type($output))";
}

def Rt_HadamardOp : Rt_WorkOp<"hadamard"> {
  let summary = "Rows mixed by a Hadamard matrix with signs";
  let description = [{
    What `transformer.hadamard` says, of a row-major matrix of `rows` rows.

    Constraints: (C1) both are of one type, f32, bf16 or f16, without gaps, whose
    elements `rows` divides; (C2) the stream is one of the program's; (C3)
    `length` is 1, 2, 4, 8, 16 or 32, and `signs` has no bits above as many.

    ```mlir
    rt.hadamard "block.n2" %tall -> %mixed rows 32 length 16 signs 21930 on "compute" : !rt.buf<32x8xbf16> -> !rt.buf<32x8xbf16>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Rt_Buf:$output, Rt_Int:$rows, Rt_Int:$length, Rt_Int:$signs,
                       StrAttr:$stream);
  let assemblyFormat = "$label $input `->` $output `rows` $rows `length` $length `signs` $signs `on` $stream attr-dict `:` custom<Buf>(type($input)) `->` custom<Buf>(type($output))";
}

def Rt_QuantizeOp : Rt_WorkOp<"quantize", [AttrSizedOperandSegments]> {
  let summary = "Codes of 8 or 4 bits and their scales, from numbers";
  let description = [{
    What `transformer.quantize` says. The input is a row-major matrix of `rows`
    rows; with `transposed` the codes are the matrix the other way round. `blocks`
    [rows, columns] are those of the codes' matrix.

    Constraints: (C1) the input is f32, bf16 or f16, the codes f8E4M3FN, f8E5M2
    or f4E2M1FN, both of one number of elements, which `rows` divides, without
    gaps; (C2) the stream is one of the program's; (C3) either amax and scale are
    one f32, or there are `blocks`, two numbers above 0, and for each a scale, f32
    or (powers of two) f8E8M0FNU, without gaps; codes of f4E2M1FN have amax,
    blocks with scales of f8E4M3FN, and the tensor's scale, one f32; (C4) only
    these have `noise`: a seed i64, a number i32 of each of the input's rows, the
    site, and `sizes` and `strides`, at most three each, of the input's columns.
    The columns' first place is the sum of `from`.

    ```mlir
    rt.quantize "block.n2" %x largest %most : !rt.buf<f32> -> %turned, %scale rows 4 transposed on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<8x4xf8E4M3FN>, !rt.buf<f32>
    rt.quantize "block.n2" %x -> %codes, %many rows 4 blocks [1, 4] on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<4x2xf32>
    rt.quantize "block.n2" %x largest %most : !rt.buf<f32> -> %four, %of_x of %s : !rt.buf<f32> rows 4 blocks [1, 16] on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x1xf8E4M3FN>
    %first = rt.rank_index ["tp"] times 8
    rt.quantize "block.d_n2" %x largest %most : !rt.buf<f32> -> %four, %of_x of %s : !rt.buf<f32> rows 4 blocks [1, 16] noise %seed, %numbers site 2147483653 sizes [8] strides [1] from %first : !rt.buf<i64>, !rt.buf<4xi32> on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x1xf8E4M3FN>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Optional<Rt_Buf>:$amax, Rt_Buf:$codes, Rt_Buf:$scale,
                       Optional<Rt_Buf>:$tensor_scale, Optional<Rt_Buf>:$seed, Optional<Rt_Buf>:$token_numbers,
                       Variadic<Index>:$first_columns, Rt_Int:$rows, UnitAttr:$transposed, DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$blocks,
                       UnitAttr:$power_of_two, OptionalAttr<Rt_Int>:$site,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$column_sizes,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$column_strides, StrAttr:$stream);
  let assemblyFormat = [{
    $label $input (`largest` $amax^ `:` type($amax))? `->` $codes `,` $scale (`of` $tensor_scale^ `:` type($tensor_scale))?
    `rows` $rows (`transposed` $transposed^)?
    (`blocks` $blocks^)? (`power_of_two` $power_of_two^)?
    (`noise` $seed^ `,` $token_numbers `site` $site `sizes` $column_sizes `strides` $column_strides `from` $first_columns `:` type($seed) `,` type($token_numbers))?
    `on` $stream attr-dict `:` custom<Buf>(type($input)) `->` custom<Buf>(type($codes)) `,` custom<Buf>(type($scale))
  }];
}

class Rt_AttentionLikeOp<string mnemonic> : Rt_WorkOp<mnemonic, [AttrSizedOperandSegments]> {
  string constraints = [{
    Constraints: (C1) ranks and sizes fit: q [b, s, g, r, k], k and v [b, t, g,
    k], lse f32 [b, s, g, r] without gaps; (C2) all of one float type, the
    elements of a head side by side; (C3) documents and positions are i32
    without gaps, b * s of the queries and b * t of the keys, both or neither;
    (C4) the window is not negative; (C5) the stream is one of the program's;
    (C6) with `dropout`, a rate of at least 0 and below 1, all that it reads is
    there: a seed i64, the numbers of the queries' tokens, i32 without gaps, b *
    s of them, and which heads of the whole model these are.
  }];
}

def Rt_AttentionOp : Rt_AttentionLikeOp<"attention"> {
  let summary = "Scaled dot-product attention, grouped queries";
  let description = [{
    `o` = softmax(scale q k^T) v per query head; `lse` is the logarithm of the
    softmax's sum, for the gradient. A query sees the keys of its own document,
    not behind it (`causal`), fewer than `window` positions before it (0: no
    bound). Sizes and distances are those of the types. With `dropout`
    probabilities are dropped as in `rt.random`, of plane (`first_group` + g) x
    `group_heads` + `first_head` + r, the number of the query's token, and the
    key's place.

  }] # constraints # [{

    ```mlir
    rt.attention "block.attention" %q, %k, %v -> %o, %lse on "compute" scale 5.000000e-01 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
    rt.attention "block.attention" %q, %k, %v -> %o, %lse documents %d, %d : !rt.buf<2x3xi32>, !rt.buf<2x3xi32> on "compute" scale 5.000000e-01 : f32 causal window 2 : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$q, Rt_Buf:$k, Rt_Buf:$v, Rt_Buf:$o, Rt_Buf:$lse,
                       Optional<Rt_Buf>:$query_documents, Optional<Rt_Buf>:$key_documents,
                       Optional<Rt_Buf>:$query_positions, Optional<Rt_Buf>:$key_positions,
                       Optional<Rt_Buf>:$seed, Optional<Rt_Buf>:$token_numbers,
                       Optional<Index>:$first_group, Optional<Index>:$first_head,
                       StrAttr:$stream, F32Attr:$scale, UnitAttr:$causal,
                       DefaultValuedAttr<Rt_Int, "0">:$window,
                       OptionalAttr<F64Attr>:$dropout, OptionalAttr<Rt_Int>:$group_heads);
  let assemblyFormat = [{
    $label $q `,` $k `,` $v `->` $o `,` $lse
    (`documents` $query_documents^ `,` $key_documents `:` custom<Buf>(type($query_documents)) `,` custom<Buf>(type($key_documents)))?
    (`positions` $query_positions^ `,` $key_positions `:` custom<Buf>(type($query_positions)) `,` custom<Buf>(type($key_positions)))?
    (`dropout` $dropout^ `seed` $seed `tokens` $token_numbers `heads` `from` $first_group `x` $group_heads `+` $first_head `:` custom<Buf>(type($seed)) `,` custom<Buf>(type($token_numbers)))?
    `on` $stream `scale` $scale `:` `f32` (`causal` $causal^)? (`window` $window^)? attr-dict
    `:` custom<Buf>(type($q)) `,` custom<Buf>(type($k)) `,` custom<Buf>(type($v)) `->` custom<Buf>(type($o)) `,` custom<Buf>(type($lse))
  }];
}

def Rt_AttentionGradOp : Rt_AttentionLikeOp<"attention_grad"> {
  let summary = "Gradients of attention's queries, keys and values";
  let description = [{
    From `o` and `lse` of the forward and `grad_o`; the gradients have the sizes
    of what they are of and are written, not added to.

  }] # constraints # [{

    ```mlir
    rt.attention_grad "block.attention" %q, %k, %v, %o, %lse, %do -> %dq, %dk, %dv on "compute" scale 5.000000e-01 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>, !rt.buf<2x3x2x1x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$q, Rt_Buf:$k, Rt_Buf:$v, Rt_Buf:$o, Rt_Buf:$lse,
                       Rt_Buf:$grad_o, Rt_Buf:$grad_q, Rt_Buf:$grad_k, Rt_Buf:$grad_v,
                       Optional<Rt_Buf>:$query_documents, Optional<Rt_Buf>:$key_documents,
                       Optional<Rt_Buf>:$query_positions, Optional<Rt_Buf>:$key_positions,
                       Optional<Rt_Buf>:$seed, Optional<Rt_Buf>:$token_numbers,
                       Optional<Index>:$first_group, Optional<Index>:$first_head,
                       StrAttr:$stream, F32Attr:$scale, UnitAttr:$causal,
                       DefaultValuedAttr<Rt_Int, "0">:$window,
                       OptionalAttr<F64Attr>:$dropout, OptionalAttr<Rt_Int>:$group_heads);
  let assemblyFormat = [{
    $label $q `,` $k `,` $v `,` $o `,` $lse `,` $grad_o `->` $grad_q `,` $grad_k `,` $grad_v
    (`documents` $query_documents^ `,` $key_documents `:` custom<Buf>(type($query_documents)) `,` custom<Buf>(type($key_documents)))?
    (`positions` $query_positions^ `,` $key_positions `:` custom<Buf>(type($query_positions)) `,` custom<Buf>(type($key_positions)))?
    (`dropout` $dropout^ `seed` $seed `tokens` $token_numbers `heads` `from` $first_group `x` $group_heads `+` $first_head `:` custom<Buf>(type($seed)) `,` custom<Buf>(type($token_numbers)))?
    `on` $stream `scale` $scale `:` `f32` (`causal` $causal^)? (`window` $window^)? attr-dict
    `:` custom<Buf>(type($q)) `,` custom<Buf>(type($k)) `,` custom<Buf>(type($v)) `,` custom<Buf>(type($o)) `,` custom<Buf>(type($lse)) `,` custom<Buf>(type($grad_o))
    `->` custom<Buf>(type($grad_q)) `,` custom<Buf>(type($grad_k)) `,` custom<Buf>(type($grad_v))
  }];
}

def Rt_RopeOp : Rt_WorkOp<"rope"> {
  let summary = "Rotate the pairs of each head by angles that grow with the position";
  let description = [{
    Elements i and i + k/2 of a head of size k are a pair, turned by position x
    `frequencies[i]`, or back where `inverse`.

    Constraints: (C1) input and output are contiguous, of one float type and
    shape, the last dimension twice as long as `frequencies`; (C2) positions are
    contiguous i32, and divide the number of heads into equal runs; (C3) the
    stream is one of the program's.

    ```mlir
    rt.rope "block.q" %x, %tokens -> %z frequencies [1.000000e+00, 1.000000e-02, 1.000000e-04, 1.000000e-06] on "compute" : !rt.buf<4x8xf32>, !rt.buf<4xi32> -> !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Rt_Buf:$positions, Rt_Buf:$output,
                       DenseF64ArrayAttr:$frequencies, UnitAttr:$inverse, StrAttr:$stream);
  let assemblyFormat = [{
    $label $input `,` $positions `->` $output `frequencies` $frequencies (`inverse` $inverse^)?
    `on` $stream attr-dict `:` custom<Buf>(type($input)) `,` custom<Buf>(type($positions)) `->` custom<Buf>(type($output))
  }];
}

def Rt_KernelLaunchOp : Rt_WorkOp<"kernel_launch", [
    AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Run a kernel over rows and columns";
  let description = [{
    `args` follow the kernel's operands: for each in memory its buffer; for a
    gathered one the shard of the table, the index (i32 per row) and the number
    of the shard's first row; for a row_index, column_index the number that the
    first has; for an `integer` its value. `constants` has one number per
    `constant`. `workspace` is room that columnwise and reduce_all need
    (`getWorkspaceBytes` in Rt.h).

    A buffer has as many elements as the operand's kind says, row-major. Its
    type may say that rows lie apart (`strides`), and with strides of 0 that
    neighbouring rows share one, or that rows repeat:

    | type | row of the launch -> row in memory |
    | --- | --- |
    | `4x3x8, strides [8, 0, 1]` | r / 3 |
    | `4x3x8, strides [0, 8, 1]` | r mod 3 |

    Constraints: (C1) the kernel exists and gets the number and types of
    operands and constants that it asks for; (C2) a full buffer has rows x
    columns elements, one per row `rows`, one per column `columns`, a scalar 1,
    a table a multiple of `columns`, an index `rows`; (C3) a buffer's strides
    have the form above, and those of a written one are not 0; other than full
    and per_row buffers, and all of elementwise and reduce_all, have no gaps;
    (C4) no buffer is written by one operand and read or written by another
    (use `inout`); (C5) the stream is one of the program's, rows and columns
    are at least 1; (C6) there is a workspace just where the kernel needs one,
    large enough, of f32 (columnwise) or i64 (reduce_all).

    ```mlir
    rt.kernel_launch "block.norm" @rms_norm rows 4 columns 8 (%x, %g, %n, %rstd) constants [9.99999974E-6 : f32, 1.250000e-01 : f32] on "compute" : !rt.buf<4x8xf32>, !rt.buf<8xf32>, !rt.buf<4x8xf32>, !rt.buf<4xf32>
    rt.kernel_launch "embedding" @embed rows 4 columns 8 (%table, %tokens, %first, %x) on "compute" : !rt.buf<5x8xf32>, !rt.buf<4xi32>, index, !rt.buf<4x8xf32>
    rt.kernel_launch "block.norm" @sum_rows rows 4 columns 8 (%x, %g) workspace %room on "compute" : !rt.buf<4x8xf32>, !rt.buf<8xf32> : !rt.buf<8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, FlatSymbolRefAttr:$kernel, Rt_Int:$rows, Rt_Int:$columns,
                       Variadic<AnyTypeOf<[Rt_Buf, Index]>>:$args,
                       Optional<Rt_Buf>:$workspace,
                       DefaultValuedAttr<ArrayAttr, "{}">:$constants, StrAttr:$stream);
  let assemblyFormat = [{
    $label $kernel `rows` $rows `columns` $columns ` ` `(` $args `)` (`constants` $constants^)?
    (`workspace` $workspace^)? `on` $stream attr-dict `:` type($args) (`:` custom<Buf>(type($workspace))^)?
  }];
  let extraClassDeclaration = [{
    /// The operands given for each of the kernel's operands.
    ::llvm::SmallVector<::mlir::ValueRange> getGroups(KernelOp kernel);
  }];
}

def Rt_SegmentSortOp : Rt_WorkOp<"segment_sort"> {
  let summary = "Sort positions by the row of a table that they name";
  let description = [{
    Once per set of tokens, for the `rt.segment_sum`s of the table's gradient.
    The table's shard has `rows` rows, the first of which is number `first`.

    Constraints: (C1) the index is i32 without gaps; (C2) the workspace is i32,
    four per index; (C3) there is at least one row; (C4) the stream is one of
    the program's.

    ```mlir
    rt.segment_sort "embedding.sort" %tokens first %first rows 5 -> %sorted on "compute" : !rt.buf<4xi32> -> !rt.buf<16xi32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$index, Index:$first, Rt_Int:$rows, Rt_Buf:$workspace,
                       StrAttr:$stream);
  let assemblyFormat = [{
    $label $index `first` $first `rows` $rows `->` $workspace `on` $stream attr-dict
    `:` custom<Buf>(type($index)) `->` custom<Buf>(type($workspace))
  }];
}

def Rt_SegmentSumOp : Rt_WorkOp<"segment_sum"> {
  let summary = "Add the rows of positions to the rows of a table that they name";
  let description = [{
    gradient[row, :] += sum of input[i, :] over the positions i sorted under
    that row, in their order.

    Constraints: (C1) all buffers are without gaps, input and gradient float;
    (C2) input is rank 2, [positions, columns], gradient rank 2, [rows,
    columns], the workspace what rt.segment_sort made: i32, four per position;
    (C3) the stream is one of the program's.

    ```mlir
    rt.segment_sum "embedding.grad" %x, %sorted -> %table on "compute" : !rt.buf<4x8xf32>, !rt.buf<16xi32> -> !rt.buf<5x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Rt_Buf:$workspace, Rt_Buf:$gradient,
                       StrAttr:$stream);
  let assemblyFormat = [{
    $label $input `,` $workspace `->` $gradient `on` $stream attr-dict
    `:` custom<Buf>(type($input)) `,` custom<Buf>(type($workspace)) `->` custom<Buf>(type($gradient))
  }];
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

class Rt_CollectiveOp<string mnemonic> : Rt_WorkOp<mnemonic> {
  string constraints = [{
    Constraints: (C1) `axes` are one of the program's communicators, the stream
    one of its streams; (C2) both buffers are contiguous and of one element
    type; (C3) their numbers of elements are related as said above.
  }];
}

def Rt_AllReduceOp : Rt_CollectiveOp<"all_reduce"> {
  let summary = "Join the group's values; each rank gets all of it";
  let description = [{
    `input` and `output` have the same number of elements; they may be the same
    buffer.

  }] # constraints # [{
    ```mlir
    rt.all_reduce "block.down" sum %h -> %h over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_ReductionAttr:$reduction, Rt_Buf:$input, Rt_Buf:$output,
                       Rt_AxesAttr:$axes, StrAttr:$stream);
  let assemblyFormat = [{
    $label $reduction $input `->` $output `over` $axes `on` $stream attr-dict
    `:` custom<Buf>(type($input)) `->` custom<Buf>(type($output))
  }];
}

def Rt_ReduceScatterOp : Rt_CollectiveOp<"reduce_scatter"> {
  let summary = "Join the group's values; each rank gets one slice";
  let description = [{
    With n ranks, `input` is [outer, n, slice] and `output` [outer, slice]: rank
    r gets the joined slices r. So a tensor is cut along any dimension; `outer`
    is the product of those before it.

  }] # constraints # [{ (C4) `outer` divides the
    number of elements.

    ```mlir
    rt.reduce_scatter "block.down" sum %x -> %y outer 1 over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<2x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_ReductionAttr:$reduction, Rt_Buf:$input, Rt_Buf:$output,
                       Rt_Int:$outer, Rt_AxesAttr:$axes, StrAttr:$stream);
  let assemblyFormat = [{
    $label $reduction $input `->` $output `outer` $outer `over` $axes `on` $stream attr-dict
    `:` custom<Buf>(type($input)) `->` custom<Buf>(type($output))
  }];
}

def Rt_AllGatherOp : Rt_CollectiveOp<"all_gather"> {
  let summary = "Put the group's slices side by side on each rank";
  let description = [{
    With n ranks, `input` is [outer, slice] and `output` [outer, n, slice], where
    slice r is rank r's.

  }] # constraints # [{ (C4) `outer` divides the
    number of elements.

    ```mlir
    rt.all_gather "block.x" %y -> %x outer 1 over ["tp"] on "comm" : !rt.buf<2x8xf32> -> !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Rt_Buf:$output, Rt_Int:$outer,
                       Rt_AxesAttr:$axes, StrAttr:$stream);
  let assemblyFormat = [{
    $label $input `->` $output `outer` $outer `over` $axes `on` $stream attr-dict
    `:` custom<Buf>(type($input)) `->` custom<Buf>(type($output))
  }];
}

def Rt_AllToAllOp : Rt_CollectiveOp<"all_to_all"> {
  let summary = "Move the cut from one dimension to another";
  let description = [{
    `split` is the size, afterwards, of the dimension that becomes cut, `concat`
    the size, before, of the one that grows; with `split_first` the former is the
    outer of the two. With n ranks:

    ```
    split_first   input  [outer, n * split, middle, concat, inner]
                  output [outer, split, middle, n * concat, inner]
    otherwise     input  [outer, concat, middle, n * split, inner]
                  output [outer, n * concat, middle, split, inner]
    ```

  }] # constraints # [{
    ```mlir
    rt.all_to_all "block.heads" %x -> %heads outer 1 split 2 middle 1 concat 8 inner 1 split_first over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<2x16xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Rt_Buf:$output,
                       Rt_Int:$outer, Rt_Int:$split, Rt_Int:$middle, Rt_Int:$concat, Rt_Int:$inner,
                       UnitAttr:$split_first, Rt_AxesAttr:$axes, StrAttr:$stream);
  let assemblyFormat = [{
    $label $input `->` $output `outer` $outer `split` $split `middle` $middle `concat` $concat
    `inner` $inner (`split_first` $split_first^)? `over` $axes `on` $stream attr-dict
    `:` custom<Buf>(type($input)) `->` custom<Buf>(type($output))
  }];
}

def Rt_PermuteOp : Rt_CollectiveOp<"permute"> {
  let summary = "Each rank receives the buffer of one rank";
  let description = [{
    Rank r of the group receives the `input` of rank `sources[r]`, or nothing
    where that is -1. Both buffers have the same number of elements.

  }] # constraints # [{ (C4) `sources` has one
    entry per rank of the group, each the number of one or -1.

    ```mlir
    rt.permute "block.swap" %x -> %z from [1, 0] over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Rt_Buf:$output, DenseI64ArrayAttr:$sources,
                       Rt_AxesAttr:$axes, StrAttr:$stream);
  let assemblyFormat = [{
    $label $input `->` $output `from` $sources `over` $axes `on` $stream attr-dict
    `:` custom<Buf>(type($input)) `->` custom<Buf>(type($output))
  }];
}

//===----------------------------------------------------------------------===//
// Messages between two ranks
//===----------------------------------------------------------------------===//

class Rt_MessageOp<string mnemonic> : Rt_WorkOp<mnemonic> {
  let arguments = (ins StrAttr:$label, Rt_Buf:$buffer, StrAttr:$channel, StrAttr:$stream);
  let assemblyFormat = "$label $buffer `over` $channel `on` $stream attr-dict `:` custom<Buf>(type($buffer))";
  string constraints = [{
    Constraints: (C1) the channel is one of the program's, the stream one of its
    streams; (C2) the buffer is contiguous.
  }];
}

def Rt_SendOp : Rt_MessageOp<"send"> {
  let summary = "Send a buffer to the receiver of this rank's queue of a channel";
  let description = [{
    The stream goes on once the message was received.

  }] # constraints # [{
    ```mlir
    rt.send "block.x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    ```
  }];
}

def Rt_ReceiveOp : Rt_MessageOp<"receive"> {
  let summary = "Receive the next message of the queue that ends at this rank";
  let description = [{
    It has as many elements as the buffer.

  }] # constraints # [{
    ```mlir
    rt.receive "block.x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    ```
  }];
}

//===----------------------------------------------------------------------===//
// Copies and events
//===----------------------------------------------------------------------===//

def Rt_CopyOp : Rt_WorkOp<"copy"> {
  let summary = "Copy the elements of one buffer to another";
  let description = [{
    Constraints: (C1) both are contiguous, of one element type and number of
    elements; (C2) the stream is one of the program's.

    ```mlir
    rt.copy "block.keep" %x -> %z on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$input, Rt_Buf:$output, StrAttr:$stream);
  let assemblyFormat = [{
    $label $input `->` $output `on` $stream attr-dict `:` custom<Buf>(type($input)) `->` custom<Buf>(type($output))
  }];
}

def Rt_ZeroOp : Rt_WorkOp<"zero"> {
  let summary = "Set every byte of a buffer to zero";
  let description = [{
    Constraints: (C1) the buffer is contiguous; (C2) the stream is one of the
    program's.

    ```mlir
    rt.zero "gradients" %x on "compute" : !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$output, StrAttr:$stream);
  let assemblyFormat = "$label $output `on` $stream attr-dict `:` custom<Buf>(type($output))";
}

def Rt_PoisonOp : Rt_WorkOp<"poison"> {
  let summary = "Declare that nobody reads a buffer before it is written again";
  let description = [{
    In checking mode its floats become NaN; otherwise nothing happens.
    Constraints: (C1) the buffer is contiguous; (C2) the stream is one of the
    program's.

    ```mlir
    rt.poison "block.x is dead" %x on "compute" : !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$label, Rt_Buf:$output, StrAttr:$stream);
  let assemblyFormat = "$label $output `on` $stream attr-dict `:` custom<Buf>(type($output))";
}

def Rt_GroupOp : Rt_Op<"group", [SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "Collectives and messages that are queued as one piece of work";
  let description = [{
    They may run in any order and at once; the stream goes on when all are done.

    Constraint: (C1) the body has collectives and messages alone, all on one
    stream.

    ```mlir
    rt.group {
    }
    ```
  }];
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

// With a slot, one of a row of `slots` events, which the program lists as
// NAME[0], NAME[1] and so on (`eventInRow`); only so can they be named.
class Rt_EventOp<string mnemonic> : Rt_Op<mnemonic> {
  let arguments = (ins StrAttr:$event, Optional<Index>:$slot, OptionalAttr<Rt_Int>:$slots, StrAttr:$stream);
  let builders = [OpBuilder<(ins "::llvm::StringRef":$event, "::llvm::StringRef":$stream), [{
    build($_builder, $_state, $_builder.getStringAttr(event), ::mlir::Value(), ::mlir::IntegerAttr(),
          $_builder.getStringAttr(stream));
  }]>];
  let assemblyFormat = "$event (`slot` $slot^ `of` $slots)? `on` $stream attr-dict";
  let hasVerifier = 1;
}

def Rt_RecordOp : Rt_EventOp<"record"> {
  let summary = "Mark a point of a stream";
  let description = [{
    An event is recorded again only after the waits for its former record were
    queued. Constraints: (C1) event and stream are the program's; (C2) without a
    slot, the event is of no row.

    ```mlir
    rt.record "ready" on "compute"
    ```
  }];
}

def Rt_WaitOp : Rt_EventOp<"wait"> {
  let summary = "Let later work of a stream wait for an event's latest record";
  let description = [{
    A wait for an event that this step has not recorded is an error; so no event
    crosses a step. Constraints: (C1) event and stream are the program's; (C2)
    without a slot, the event is of no row.

    ```mlir
    rt.wait "ready" on "comm"
    ```
  }];
}

#endif // HEDDLE_RT_WORK_OPS
