// SPDX-License-Identifier: Apache-2.0
#include "pulse/replay.hpp"

#include <initializer_list>
#include <vector>

#include "check.hpp"

namespace {

using pulse::kNoRow;
using pulse::kNoTime;
using pulse::ReplayCut;
using pulse::ReplayMessage;
using Arrivals = std::vector<std::int64_t>;

// Messages in order of their start, each with what it waited for.
struct Job {
  std::vector<ReplayMessage> messages;
  std::vector<ReplayCut> cuts;
  std::size_t hosts = 8;

  // Sent at `start` by host 0 to host 1, gone after 6 ns and there after 10; it waited for nothing known.
  ReplayMessage& add(std::int64_t start) {
    cuts.push_back({0, 0, 0});
    return messages.emplace_back(
        ReplayMessage{start, kNoRow, kNoRow, kNoRow, kNoRow, kNoTime, 0, 0, 0, 0, 6, 10, 0, 0, 1});
  }

  std::vector<std::int64_t> in_order() const {
    std::vector<std::int64_t> order;
    for (std::size_t row = 0; row < messages.size(); ++row) order.push_back(static_cast<std::int64_t>(row));
    return order;
  }

  bool run(Arrivals& arrivals) const {
    arrivals.assign(messages.size(), 0);
    return pulse::replay(messages, cuts, in_order(), hosts, arrivals);
  }

  Arrivals arrivals() const {
    Arrivals found;
    CHECK(run(found));
    return found;
  }

  bool refused() const {
    Arrivals found;
    return !run(found);
  }
};

void check_arrivals(const Job& job, std::initializer_list<std::int64_t> expected) {
  CHECK(job.arrivals() == Arrivals(expected));
}

// A chain of three over hosts 0, 1, 2: each sends 5 ns after it got the message before.
Job chain() {
  Job job;
  job.add(100);
  auto& second = job.add(115);
  second.sender = 1, second.receiver = 2, second.input_row = 0, second.input_lag = 5;
  auto& third = job.add(130);
  third.sender = 2, third.receiver = 3, third.input_row = 1, third.input_lag = 5;
  return job;
}

// Two messages to host 2, which sends when both have come: at 135, 5 ns after the later one.
Job meeting(std::int64_t one, std::int64_t other) {
  Job job;
  auto& first = job.add(one);
  first.receiver = 2;
  auto& second = job.add(other);
  second.sender = 1, second.receiver = 2;
  auto& answer = job.add(other + 15);
  answer.sender = 2, answer.receiver = 3;
  answer.input_row = 1, answer.input_lag = 5;
  answer.before_row = 0, answer.before_lag = 9;
  return job;
}

// A message at 150 whose input came at 110 and whose credit, granted at 140, was known at 145.
Job credited() {
  Job job;
  job.add(100);
  auto& sent = job.add(150);
  sent.sender = 1, sent.receiver = 2;
  sent.input_row = 0, sent.input_lag = 5;
  sent.posted = 140, sent.credit_way = 5;
  return job;
}

TEST("nothing cut returns the observed arrivals") {
  check_arrivals(chain(), {110, 125, 140});
  check_arrivals(meeting(120, 120), {130, 130, 145});
  check_arrivals(credited(), {110, 160});
}

TEST("a message that starts before what it seems to wait for keeps its time") {
  Job job = chain();
  job.messages[1].start = 111;  // clocks that are off by a few ns
  check_arrivals(job, {110, 121, 140});
  job.cuts[1].host = 50;
  check_arrivals(job, {110, 121, 140});
}

TEST("an empty job has no arrivals") { check_arrivals(Job{}, {}); }

TEST("a cut on the chain saves its length at all that follows") {
  Job job = chain();
  job.cuts[0].transfer = 4;
  check_arrivals(job, {106, 121, 136});
  job.cuts[1].transfer = 3;
  check_arrivals(job, {106, 118, 133});
}

TEST("no message arrives before it was sent, whatever is cut") {
  Job job = chain();
  job.cuts[0].transfer = 1000;
  check_arrivals(job, {100, 115, 130});
}

TEST("a host is shortened by what it took after all its waits, and no more") {
  Job job = chain();
  job.messages[1].input_lag = 2;  // 3 of the 5 ns were its own
  job.cuts[1].host = 2;
  check_arrivals(job, {110, 123, 138});
  job.cuts[1].host = 100;
  check_arrivals(job, {110, 122, 137});
}

TEST("the lag that a place always has stays, however early its input comes") {
  Job job = chain();
  job.messages[1].input_lag = 5;
  job.cuts[0].transfer = 10;
  job.cuts[1].host = 100;
  check_arrivals(job, {100, 115, 130});
}

TEST("a cut of what nobody waits for saves nothing elsewhere") {
  Job job = chain();
  auto& aside = job.add(131);
  aside.sender = 4, aside.receiver = 5;
  job.cuts[3].transfer = 8;
  check_arrivals(job, {110, 125, 140, 133});
}

TEST("of two waits only the later one is worth a cut") {
  Job job = meeting(100, 120);
  job.cuts[0].transfer = 10;
  check_arrivals(job, {100, 130, 145});
  job.cuts[0].transfer = 0;
  job.cuts[1].transfer = 10;
  check_arrivals(job, {110, 120, 135});
}

TEST("two equally late ones hide each other and save together") {
  Job job;
  job.add(120);
  auto& second = job.add(120);
  second.sender = 1, second.receiver = 2;
  auto& answer = job.add(135);
  answer.sender = 2, answer.receiver = 3;
  answer.input_row = 1, answer.input_lag = 5;
  answer.before_row = 0, answer.before_lag = 9;  // gone at 126: both waits end at 135
  job.cuts[0].transfer = 6;
  check_arrivals(job, {124, 130, 145});
  job.cuts[0].transfer = 0;
  job.cuts[1].transfer = 6;
  check_arrivals(job, {130, 124, 145});
  job.cuts[0].transfer = 6;
  check_arrivals(job, {124, 124, 139});
}

TEST("what follows in a lane waits until its sender is done with the message before, not for its arrival") {
  Job job;
  job.add(100);
  auto& next = job.add(106);
  next.before_row = 0;
  job.cuts[0].transfer = 4;
  check_arrivals(job, {106, 112});
  job.cuts[0].transfer = 9;  // of which 6 were spent sending
  check_arrivals(job, {101, 110});
}

TEST("a credit that bound holds its message back, and frees it when it comes earlier") {
  Job job = credited();
  job.cuts[1].credit = 20;
  check_arrivals(job, {110, 140});
  job.cuts[1].host = 5;  // and 5 ns were the sender's own
  check_arrivals(job, {110, 135});
}

TEST("a late credit is worth no more than until the input") {
  Job job = credited();
  job.cuts[1].credit = 1000;
  check_arrivals(job, {110, 130});
}

TEST("a credit that did not bind is worth nothing, and does not hold back what else becomes earlier") {
  Job job = credited();
  job.messages[1].posted = 100;  // known at 105, the input came at 110
  job.cuts[1].credit = 50;
  check_arrivals(job, {110, 160});
  job.cuts[0].transfer = 10;
  check_arrivals(job, {100, 150});
}

TEST("a credit moves with the arrival that it waited for") {
  Job job = credited();
  job.messages[1].input_row = kNoRow;
  job.messages[1].grant_row = 0;
  job.cuts[0].transfer = 4;
  check_arrivals(job, {106, 156});
}

TEST("a credit that waited for an own sending moves with its start and not with its way") {
  Job job = credited();
  job.messages[0].sender = 2;
  job.messages[1].input_row = kNoRow;
  job.messages[1].grant_row = 0;
  job.messages[1].grant_is_send = 1;
  job.cuts[0].transfer = 4;
  check_arrivals(job, {106, 160});
  job.cuts[0].host = 7;
  check_arrivals(job, {99, 153});
}

TEST("a message whose waits are unknown follows what its sender did before") {
  Job job = chain();
  auto& unknown = job.add(150);
  unknown.sender = 1, unknown.receiver = 4;
  auto& others = job.add(151);
  others.sender = 5, others.receiver = 4;
  job.cuts[0].transfer = 4;
  check_arrivals(job, {106, 121, 136, 156, 161});
  job.cuts[3].host = 3;
  check_arrivals(job, {106, 121, 136, 153, 161});
}

TEST("a credit whose cause is unknown follows what its receiver did before") {
  Job job = chain();
  auto& sent = job.add(150);
  sent.sender = 5, sent.receiver = 1;
  sent.posted = 140, sent.credit_way = 10;
  job.cuts[0].transfer = 4;
  check_arrivals(job, {106, 121, 136, 156});
}

TEST("rows that are not in the order keep their observed times for those that wait for them") {
  const Job job = chain();
  std::vector<ReplayCut> cuts = job.cuts;
  cuts[0].transfer = 4;
  Arrivals found(3, -1);
  const std::vector<std::int64_t> order{1, 2};
  CHECK(pulse::replay(job.messages, cuts, order, job.hosts, found));
  CHECK(found == Arrivals({-1, 125, 140}));
}

TEST("a host that computes for longer is as late with what it computes next, not once more") {
  // Host 0 computes 20 ns before each of three messages, 5 ns too long; its input would allow all of them.
  Job job;
  job.add(0);
  job.add(25);
  job.add(50);
  for (std::int64_t row : {1, 2}) {
    auto& message = job.messages[static_cast<std::size_t>(row)];
    message.compute_row = row - 1;
    message.compute_lag = 20;
    job.cuts[static_cast<std::size_t>(row)].host = 5;
  }
  check_arrivals(job, {10, 30, 50});
}

TEST("rows and hosts out of range are refused") {
  for (std::int64_t wrong : {-2L, 3L, 1L << 40}) {
    for (auto member : {&ReplayMessage::input_row, &ReplayMessage::before_row, &ReplayMessage::grant_row,
                        &ReplayMessage::compute_row}) {
      Job job = chain();
      job.messages[1].*member = wrong;
      CHECK(job.refused());
    }
    Job job = chain();
    Arrivals found(3);
    const std::vector<std::int64_t> order{0, wrong, 1};
    CHECK(!pulse::replay(job.messages, job.cuts, order, job.hosts, found));
  }
  for (auto member : {&ReplayMessage::sender, &ReplayMessage::receiver}) {
    for (std::int32_t wrong : {-1, 8}) {
      Job job = chain();
      job.messages[2].*member = wrong;
      CHECK(job.refused());
    }
  }
}

TEST("cuts and arrivals must be as many as messages") {
  Job job = chain();
  Arrivals found(2);
  CHECK(!pulse::replay(job.messages, job.cuts, job.in_order(), job.hosts, found));
  job.cuts.pop_back();
  CHECK(job.refused());
}

}  // namespace
