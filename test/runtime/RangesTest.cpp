// What heddle_rt_ranges_write leaves.

#include "heddle/Runtime/heddle_rt.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace {

std::vector<std::string> linesOf(const std::string &path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    lines.push_back(line);
  return lines;
}

TEST(Ranges, AreWrittenInProgramOrder) {
  heddle_rt_options options{};
  options.mode = HEDDLE_RT_MODE_RECORD;
  options.size = 1;
  heddle_rt_context *context = nullptr;
  ASSERT_EQ(heddle_rt_init(&options, &context), HEDDLE_RT_OK);
  heddle_rt_stream *compute = nullptr, *comm = nullptr;
  heddle_rt_event *done = nullptr;
  void *memory = nullptr;
  ASSERT_EQ(heddle_rt_stream_create(context, "compute", 0, &compute),
            HEDDLE_RT_OK);
  ASSERT_EQ(heddle_rt_stream_create(context, "comm", 1, &comm), HEDDLE_RT_OK);
  ASSERT_EQ(heddle_rt_event_create(context, "done", &done), HEDDLE_RT_OK);
  ASSERT_EQ(heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, 64, "arena", &memory),
            HEDDLE_RT_OK);
  auto *x = static_cast<float *>(memory);
  const std::string path = testing::TempDir() + "heddle-ranges.jsonl";
  ASSERT_EQ(heddle_rt_ranges_write(context, path.c_str()), HEDDLE_RT_OK);
  ASSERT_EQ(heddle_rt_zero(compute, x, 16), HEDDLE_RT_OK);
  ASSERT_EQ(heddle_rt_event_record(done, compute), HEDDLE_RT_OK);
  ASSERT_EQ(heddle_rt_stream_wait(comm, done), HEDDLE_RT_OK);
  const heddle_rt_access update{x + 2, 8, 2};
  ASSERT_EQ(heddle_rt_note(comm, "an \"update\"", &update, 1), HEDDLE_RT_OK);
  heddle_rt_gemm_args gemm{};
  gemm.m = 2, gemm.n = 1, gemm.k = 1;
  gemm.lda = 1, gemm.ldb = 1, gemm.ldc = 3;
  gemm.alpha = 1, gemm.beta = 1;
  gemm.batch = 1;
  ASSERT_EQ(heddle_rt_gemm(comm, &gemm, x, x + 2, x + 8), HEDDLE_RT_OK)
      << heddle_rt_last_error();
  ASSERT_EQ(heddle_rt_ranges_write(context, nullptr), HEDDLE_RT_OK);
  ASSERT_EQ(heddle_rt_zero(comm, x, 16), HEDDLE_RT_OK); // nobody listens
  EXPECT_EQ(
      linesOf(path),
      (std::vector<std::string>{
          R"({"version": 1, "rank": 0, "size": 1, "streams": ["compute", "comm"], "allocations": ["arena"]})",
          R"({"work": "zero", "stream": 0, "reads": [], "writes": [[0, 0, 16]]})",
          R"({"record": 0, "stream": 0})", R"({"wait": 0, "stream": 1})",
          R"({"work": "an \"update\"", "stream": 1, "reads": [[0, 8, 8]], "writes": [[0, 8, 8]]})",
          R"({"work": "gemm", "stream": 1, "reads": [[0, 0, 8], [0, 8, 4], [0, 32, 4], [0, 44, 4]], "writes": [[0, 32, 4], [0, 44, 4]]})"}));
  EXPECT_EQ(heddle_rt_ranges_write(context, "/nowhere/ranges"),
            HEDDLE_RT_INVALID_ARGUMENT);
  EXPECT_EQ(heddle_rt_finalize(context), HEDDLE_RT_OK);
}

} // namespace
