// The happens-before check by itself.

#include "runtime/common/Races.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

using heddle::runtime::Races;
using testing::HasSubstr;

namespace {

char memory[1 << 20];

struct Program {
  Races races;
  int compute = races.addStream("compute"), comm = races.addStream("comm");

  static heddle_rt_access reads(int begin, int end) {
    return {memory + begin, end - begin, 0};
  }
  static heddle_rt_access writes(int begin, int end) {
    return {memory + begin, end - begin, 1};
  }
  std::string note(int stream, const char *what,
                   std::vector<heddle_rt_access> accesses) {
    return races.note(stream, what, accesses.data(), accesses.size());
  }
  void order(int before, int after) { races.wait(after, races.record(before)); }
};

TEST(Races, OneStreamIsOrdered) {
  Program p;
  EXPECT_EQ(p.note(p.compute, "a", {p.writes(0, 8)}), "");
  EXPECT_EQ(p.note(p.compute, "b", {p.reads(0, 8), p.writes(4, 12)}), "");
  EXPECT_EQ(p.note(p.compute, "c", {p.writes(0, 16)}), "");
}

TEST(Races, NamesBothPartiesOfAMissingEvent) {
  Program p;
  p.note(p.comm, "sgd", {p.writes(100, 200)});
  EXPECT_EQ(p.note(p.compute, "embed", {p.reads(199, 300)}),
            "embed on stream compute reads what sgd on stream comm writes; no "
            "event orders them");
}

TEST(Races, WritesConflictWithReads) {
  Program p;
  p.note(p.comm, "all_reduce", {p.reads(0, 10)});
  EXPECT_THAT(p.note(p.compute, "zero", {p.writes(9, 12)}),
              HasSubstr("zero on stream compute writes what all_reduce on "
                        "stream comm reads"));
}

TEST(Races, ReadsDoNotConflictAndNeighboursDoNotTouch) {
  Program p;
  p.note(p.comm, "a", {p.reads(0, 10)});
  EXPECT_EQ(p.note(p.compute, "b", {p.reads(0, 10)}), "");
  p.note(p.comm, "c", {p.writes(10, 20)});
  EXPECT_EQ(p.note(p.compute, "d", {p.writes(20, 30)}), "");
}

TEST(Races, AnEventOrders) {
  Program p;
  p.note(p.compute, "a", {p.writes(0, 10)});
  p.order(p.compute, p.comm);
  EXPECT_EQ(p.note(p.comm, "b", {p.writes(0, 10)}), "");
  p.order(p.comm, p.compute);
  EXPECT_EQ(p.note(p.compute, "c", {p.reads(0, 10)}), "");
}

TEST(Races, AnEventRecordedTooEarlyDoesNot) {
  Program p;
  p.note(p.compute, "a", {p.writes(0, 10)});
  const Races::Clock early = p.races.record(p.compute);
  p.note(p.compute, "b", {p.writes(0, 10)});
  p.races.wait(p.comm, early);
  EXPECT_THAT(p.note(p.comm, "c", {p.reads(0, 10)}),
              HasSubstr("c on stream comm reads what b"));
}

TEST(Races, OrderIsTransitive) {
  Program p;
  const int copy = p.races.addStream("copy");
  p.note(p.compute, "a", {p.writes(0, 10)});
  p.order(p.compute, p.comm);
  p.order(p.comm, copy);
  EXPECT_EQ(p.note(copy, "b", {p.writes(0, 10)}), "");
}

TEST(Races, ReadersOnSeveralStreamsAreAllRemembered) {
  Program p;
  const int copy = p.races.addStream("copy");
  p.note(p.comm, "a", {p.reads(0, 10)});
  p.note(copy, "b", {p.reads(0, 10)});
  p.order(copy, p.compute);
  EXPECT_THAT(p.note(p.compute, "c", {p.writes(0, 10)}),
              HasSubstr("what a on stream comm reads"));
}

TEST(Races, TheHostOrdersWhatItWaitedFor) {
  Program p;
  p.note(p.comm, "a", {p.writes(0, 10)});
  EXPECT_NE(p.note(Races::kHost, "free", {p.writes(0, 10)}), "");
  Program q;
  q.note(q.comm, "a", {q.writes(0, 10)});
  q.races.synchronize(q.comm);
  EXPECT_EQ(q.note(q.compute, "b", {q.writes(0, 10)}), "");
  q.races.synchronize(q.compute);
  EXPECT_EQ(q.note(Races::kHost, "free", {q.writes(0, 10)}), "");
}

TEST(Races, ForgottenMemoryStartsAnew) {
  Program p;
  p.note(p.comm, "a", {p.writes(0, 100)});
  p.races.forget(memory + 20, 50);
  EXPECT_EQ(p.note(p.compute, "b", {p.writes(20, 70)}), "");
  EXPECT_NE(p.note(p.compute, "c", {p.reads(70, 71)}), "");
  EXPECT_NE(p.note(p.compute, "d", {p.reads(19, 20)}), "");
}

/// Ranges of all kinds against a byte-by-byte history.
TEST(Races, AgreesWithAHistoryOfEachByte) {
  struct Past {
    int stream;
    Races::Clock at; ///< clock of the event recorded right after it
    int begin, end;
    bool writes;
  };
  uint64_t random = 88172645463325252u;
  const auto draw = [&](int n) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    return int(random % uint64_t(n));
  };
  int conflicts = 0, orders = 0;
  for (int round = 0; round < 300; ++round) {
    Program p;
    std::vector<Past> past;
    for (int step = 0; step < 12; ++step) {
      const int stream = draw(2) ? p.compute : p.comm;
      if (draw(4) == 0) {
        p.order(stream, p.compute + p.comm - stream);
        ++orders;
        continue;
      }
      const int begin = draw(20), end = begin + 1 + draw(12);
      const bool writes = draw(2);
      const Races::Clock now = p.races.record(stream);
      bool wanted = false;
      for (const Past &one : past)
        wanted |= one.stream != stream && begin < one.end && one.begin < end &&
                  (writes || one.writes) &&
                  now[size_t(one.stream)] < one.at[size_t(one.stream)];
      const std::string found =
          p.note(stream, "x", {{memory + begin, end - begin, writes}});
      ASSERT_EQ(!found.empty(), wanted) << "round " << round << ": " << found;
      if (wanted) {
        ++conflicts;
        break; // after a race the history is no longer one
      }
      past.push_back({stream, p.races.record(stream), begin, end, writes});
    }
  }
  EXPECT_GT(conflicts, 50);
  EXPECT_GT(orders, 300);
}

TEST(Races, ManyLaunchesStayQuickAndSmall) {
  Program p;
  // A linear scan of past ranges takes minutes here.
  for (int i = 0; i < 100000; ++i) {
    const int at = i % 1000 * 1000;
    ASSERT_EQ(p.note(p.compute, "k",
                     {p.reads(at, at + 1000), p.writes(at + 500, at + 1000)}),
              "");
  }
  EXPECT_LE(p.races.intervals(), 2000u);
}

} // namespace
