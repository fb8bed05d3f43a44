//===- LaunchOrderTest.cpp - Planted cycles and mismatches ----------------===//

#include "passes/Lowering/LaunchOrder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

using namespace heddle::lowering;

namespace {

/// Sequences from short texts: "AB" launches on communicator A, then on B. In
/// brackets is a group; "A1" launches operation 1 of the list.
class LaunchOrderTest : public testing::Test {
protected:
  void communicator(char name, std::vector<int64_t> members) {
    names.push_back(name);
    program.communicators.push_back({std::string(1, name), std::move(members)});
  }

  void rank(const std::string &text) {
    RankLaunches &own = program.ranks.emplace_back();
    own.rank = int64_t(program.ranks.size()) - 1;
    bool grouped = false;
    int64_t step = 0;
    for (char c : text) {
      if (c == '[' || c == ']') {
        grouped = c == '[';
        ++step;
      } else if (std::isdigit(c)) {
        own.launches.back().operation = size_t(c - '0');
      } else {
        own.launches.push_back({names.find(c), 0, grouped ? step : ++step});
      }
    }
  }

  /// "1: 0<2, 0: 1<0": ranks and numbers of their launches.
  std::string cycle() {
    LaunchVerdict verdict = checkLaunchOrder(program);
    if (verdict.mismatch)
      return "mismatch";
    std::string text;
    for (const LaunchLink &link : verdict.cycle)
      text += (text.empty() ? "" : ", ") + std::to_string(link.rank) + ": " +
              std::to_string(link.before) + "<" + std::to_string(link.after);
    return text;
  }

  /// "A at 2: rank 0 launch 2, rank 1 none".
  std::string mismatch() {
    LaunchVerdict verdict = checkLaunchOrder(program);
    if (!verdict.mismatch)
      return "";
    const LaunchMismatch &found = *verdict.mismatch;
    auto place = [](const LaunchPlace &p) {
      return "rank " + std::to_string(p.rank) +
             (p.launch ? " launch " + std::to_string(*p.launch) : " none");
    };
    return program.communicators[found.communicator].name + " at " +
           std::to_string(found.position) + ": " + place(found.expected) +
           ", " + place(found.found);
  }

  std::string names;
  LaunchProgram program{{},
                        {{"all_reduce sum", 32, "f32"},
                         {"all_reduce max", 32, "f32"},
                         {"all_reduce sum", 16, "f32"},
                         {"all_reduce sum", 32, "bf16"},
                         {"all_reduce sum", 32, "f32"}},
                        {}};
};

TEST_F(LaunchOrderTest, OneTextOnAllRanksIsRight) {
  communicator('A', {0, 1});
  communicator('B', {0, 1, 2});
  rank("ABBA");
  rank("ABBA");
  rank("BB");
  EXPECT_TRUE(checkLaunchOrder(program).isRight());
}

TEST_F(LaunchOrderTest, TwoRanksInOppositeOrders) {
  communicator('A', {0, 1});
  communicator('B', {0, 1});
  rank("AABA");
  rank("AAAB");
  EXPECT_EQ(cycle(), "0: 2<3, 1: 2<3");
}

TEST_F(LaunchOrderTest, ARoundOfThreeInWhichNoTwoDisagree) {
  communicator('A', {0, 1});
  communicator('B', {1, 2});
  communicator('C', {2, 0});
  rank("AC");
  rank("BA");
  rank("CB");
  EXPECT_EQ(cycle(), "0: 0<1, 2: 0<1, 1: 0<1");
  program.ranks[2].launches = {{1, 0, 0}, {2, 0, 1}};
  EXPECT_TRUE(checkLaunchOrder(program).isRight());
}

// A round of three is met first, but one of two is smaller.
TEST_F(LaunchOrderTest, TheSmallestCycleIsTold) {
  communicator('A', {0, 1});
  communicator('B', {1, 2});
  communicator('C', {2, 0});
  communicator('D', {3, 2});
  communicator('E', {3, 2});
  rank("AC");
  rank("BA");
  rank("CBDE");
  rank("ED");
  EXPECT_EQ(cycle(), "2: 2<3, 3: 0<1");
}

TEST_F(LaunchOrderTest, LaunchesOfOneGroupHaveNoOrder) {
  communicator('A', {0, 1});
  communicator('B', {0, 1});
  rank("[AB]A");
  rank("[BA]A");
  EXPECT_TRUE(checkLaunchOrder(program).isRight());
  // Behind the group is behind all of it.
  communicator('C', {0, 1});
  program.ranks.clear();
  rank("[AB]C");
  rank("ACB");
  EXPECT_EQ(cycle(), "0: 1<2, 1: 1<2");
}

TEST_F(LaunchOrderTest, MembersDifferInOperationSizeOrType) {
  communicator('A', {0, 1, 2});
  for (char other : {'1', '2', '3'}) {
    program.ranks.clear();
    rank("AAA");
    rank("AAA");
    rank(std::string("AA") + "A" + other);
    EXPECT_EQ(mismatch(), "A at 2: rank 0 launch 2, rank 2 launch 2") << other;
  }
  program.ranks.clear();
  rank("AA");
  rank("AA4"); // equal, said twice
  rank("AA");
  EXPECT_EQ(mismatch(), "");
}

TEST_F(LaunchOrderTest, AMemberLaunchesLessOften) {
  communicator('A', {0, 1});
  communicator('B', {0, 1});
  rank("ABA");
  rank("AB");
  EXPECT_EQ(mismatch(), "A at 1: rank 0 launch 2, rank 1 none");
  program.ranks.clear();
  rank("AB");
  rank("BAB");
  EXPECT_EQ(mismatch(), "B at 1: rank 1 launch 2, rank 0 none");
}

TEST_F(LaunchOrderTest, AMemberWithoutASequenceGoesAlong) {
  communicator('A', {0, 1, 7});
  rank("A");
  rank("A");
  EXPECT_TRUE(checkLaunchOrder(program).isRight());
}

/// Between stages: each pair of ranks is a queue of its own.
TEST_F(LaunchOrderTest, SendsMeetReceives) {
  communicator('P', {0, 1, 2});
  program.operations = {
      {"send", 8, "f32"}, {"receive", 8, "f32"}, {"receive", 9, "f32"}};
  auto to = [](int64_t peer, int64_t step) { return Launch{0, 0, step, peer}; };
  auto from = [](int64_t peer, int64_t step) {
    return Launch{0, 1, step, peer};
  };
  program.ranks = {{0, {to(1, 0), to(2, 1), from(1, 2)}},
                   {1, {from(0, 0), to(0, 1)}},
                   {2, {from(0, 0)}}};
  EXPECT_TRUE(checkLaunchOrder(program).isRight());
  // Both send first.
  program.ranks[1].launches = {to(0, 0), from(0, 1)};
  EXPECT_EQ(cycle(), "0: 0<2, 1: 0<1");
  // In one group they may.
  program.ranks[1].launches = {to(0, 0), from(0, 0)};
  EXPECT_TRUE(checkLaunchOrder(program).isRight());
  program.ranks[2].launches = {{0, 2, 0, 0}};
  EXPECT_EQ(mismatch(), "P at 0: rank 0 launch 1, rank 2 launch 0");
  program.ranks[2].launches = {};
  EXPECT_EQ(mismatch(), "P at 0: rank 0 launch 1, rank 2 none");
}

/// 16 ranks in a 4 x 4 mesh, groups of rows, of columns and of all.
LaunchProgram large(int64_t perRank) {
  LaunchProgram program;
  program.operations = {{"all_reduce sum", 32, "f32"}};
  for (int64_t i = 0; i < 4; ++i)
    program.communicators.push_back(
        {"row", {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3}});
  for (int64_t i = 0; i < 4; ++i)
    program.communicators.push_back({"column", {i, i + 4, i + 8, i + 12}});
  program.communicators.push_back({"all", {}});
  for (int64_t rank = 0; rank < 16; ++rank) {
    program.communicators.back().members.push_back(rank);
    std::minstd_rand random(1);
    RankLaunches &own = program.ranks.emplace_back();
    own.rank = rank;
    for (int64_t i = 0; i < perRank; ++i) {
      const auto drawn = random() % 8;
      own.launches.push_back({drawn == 0  ? size_t(8)
                              : drawn < 5 ? size_t(rank / 4)
                                          : size_t(4 + rank % 4),
                              0, i});
    }
  }
  return program;
}

TEST_F(LaunchOrderTest, SixteenRanksOfAHundredThousandLaunches) {
  LaunchProgram right = large(100000);
  EXPECT_TRUE(checkLaunchOrder(right).isRight());
  // Two neighbours on one rank change places, far behind.
  std::vector<Launch> &launches = right.ranks[5].launches;
  size_t i = 90000;
  while (launches[i].communicator == launches[i + 1].communicator)
    ++i;
  std::swap(launches[i].communicator, launches[i + 1].communicator);
  LaunchVerdict verdict = checkLaunchOrder(right);
  EXPECT_FALSE(verdict.mismatch);
  ASSERT_FALSE(verdict.cycle.empty());
  EXPECT_TRUE(std::any_of(
      verdict.cycle.begin(), verdict.cycle.end(), [&](const LaunchLink &link) {
        return link.rank == 5 && link.before == i && link.after == i + 1;
      }));
}

/// A launch as its communicator and how many of it were before.
using Key = std::pair<size_t, int64_t>;

Key keyOf(const RankLaunches &own, size_t launch) {
  const size_t communicator = own.launches[launch].communicator;
  return {communicator, std::count_if(own.launches.begin(),
                                      own.launches.begin() + int64_t(launch),
                                      [&](const Launch &other) {
                                        return other.communicator ==
                                               communicator;
                                      })};
}

/// Links of a smallest cycle, or 0: plainly, from each launch along whatever
/// some rank launches later.
size_t smallestCycle(const LaunchProgram &program) {
  std::map<Key, std::set<Key>> later;
  for (const RankLaunches &own : program.ranks)
    for (size_t i = 0; i < own.launches.size(); ++i)
      for (size_t k = i + 1; k < own.launches.size(); ++k)
        later[keyOf(own, i)].insert(keyOf(own, k));
  size_t smallest = 0;
  for (const auto &[begin, unused] : later) {
    std::set<Key> reached = {begin};
    for (size_t links = 1; links <= later.size(); ++links) {
      std::set<Key> next;
      for (const Key &key : reached)
        next.insert(later[key].begin(), later[key].end());
      reached = std::move(next);
      if (reached.count(begin) && (smallest == 0 || links < smallest))
        smallest = links;
    }
  }
  return smallest;
}

/// What comes behind in one link is, on the next one's rank, what comes before.
void expectCycle(const LaunchProgram &program,
                 const std::vector<LaunchLink> &cycle) {
  for (size_t i = 0; i < cycle.size(); ++i) {
    const LaunchLink &link = cycle[i], &next = cycle[(i + 1) % cycle.size()];
    EXPECT_LT(link.before, link.after);
    EXPECT_EQ(keyOf(program.ranks[size_t(link.rank)], link.after),
              keyOf(program.ranks[size_t(next.rank)], next.before));
  }
}

/// Launches on six pairs and triples out of five ranks, in one order, of which
/// some ranks exchange two.
LaunchProgram drawProgram(std::minstd_rand &random) {
  LaunchProgram program;
  program.operations = {{"all_reduce sum", 32, "f32"}};
  program.ranks.resize(5);
  for (int64_t rank = 0; rank < 5; ++rank)
    program.ranks[size_t(rank)].rank = rank;
  for (int i = 0; i < 6; ++i) {
    std::vector<int64_t> ranks = {0, 1, 2, 3, 4};
    std::shuffle(ranks.begin(), ranks.end(), random);
    ranks.resize(2 + random() % 2);
    program.communicators.push_back({"", std::move(ranks)});
  }
  for (int i = 0; i < 8; ++i) {
    const size_t drawn = random() % 6;
    for (int64_t rank : program.communicators[drawn].members)
      program.ranks[size_t(rank)].launches.push_back({drawn, 0, 0});
  }
  for (int swaps = int(random() % 4); swaps > 0; --swaps)
    if (auto &its = program.ranks[random() % 5].launches; its.size() > 1) {
      const size_t i = random() % (its.size() - 1);
      std::swap(its[i], its[i + 1]);
    }
  for (RankLaunches &own : program.ranks)
    for (size_t i = 0; i < own.launches.size(); ++i)
      own.launches[i].step = int64_t(i);
  return program;
}

TEST_F(LaunchOrderTest, CyclesAreThoseThatAPlainSearchFinds) {
  std::minstd_rand random(7);
  std::map<size_t, int> sizes;
  for (int round = 0; round < 2000; ++round) {
    const LaunchProgram drawn = drawProgram(random);
    const LaunchVerdict verdict = checkLaunchOrder(drawn);
    ASSERT_FALSE(verdict.mismatch);
    ASSERT_EQ(verdict.cycle.size(), smallestCycle(drawn)) << "round " << round;
    expectCycle(drawn, verdict.cycle);
    ++sizes[verdict.cycle.size()];
  }
  // None, of two and of three: each often enough to have been asked.
  for (size_t size : {0, 2, 3})
    EXPECT_GT(sizes[size], 20) << size;
}

} // namespace
