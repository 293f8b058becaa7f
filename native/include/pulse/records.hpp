// SPDX-License-Identifier: Apache-2.0
//
// The records that a meter hands out for one interval. Each is a trivially
// copyable struct whose layout equals the NumPy dtype of the same name in
// dpu_app/wire/records.py; a batch of them crosses the Python border at once.
// Times are nanoseconds of the capturing NIC's clock, sizes are bytes.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace pulse {

// An IPv6 address, or an IPv4 address in its mapped form ::ffff:a.b.c.d.
using Address = std::array<std::uint8_t, 16>;

inline constexpr std::uint32_t kNoFlow = 0xffffffffU;

// What an EventRecord tells. Values are part of the frame format.
enum class EventKind : std::uint8_t {
  repeat = 1,           // a PSN seen before: a retransmission when seen at its sender
  gap = 2,              // the PSN jumped ahead: `count` PSNs are missing from this view
  late = 3,             // a PSN that fills an earlier gap
  nak_sequence = 4,     // AETH syndrome 0x60
  nak_invalid = 5,      // 0x61
  nak_access = 6,       // 0x62
  nak_operational = 7,  // 0x63
  rnr = 8,              // receiver not ready, 0x20-0x3f
  cnp = 9,              // congestion notification for the flow's queue pair
  ecn_ce = 10,          // congestion-experienced mark on a packet of the flow
  restart = 11,         // the queue pair began a new life (PSN back at its start)
};

enum class MarkerKind : std::uint8_t { first = 1, only = 2, control = 3, ack = 4, nak = 5, data = 6 };

enum MessageFlag : std::uint8_t {
  kMessageImmediate = 1,    // ends with immediate data
  kMessageNoStart = 2,      // its first packet is outside the capture or was lost by it
  kMessageNoEnd = 4,        // not ended when the interval was cut, or its end was never seen
  kMessageRepeated = 8,     // holds at least one PSN that had been seen before
  kMessageLengthKnown = 16  // `bytes` is RETH.DMALen rather than the sum of payloads seen
};

// Totals of one flow = (src, dst, dest_qpn), one direction, over one interval.
struct FlowRecord {
  std::int64_t first_ns;
  std::int64_t last_ns;
  std::uint64_t packets;       // every packet of the flow
  std::uint64_t wire_bytes;    // length on the wire of those packets
  std::uint64_t data_bytes;    // RDMA payload, repeats included
  std::uint64_t repeat_bytes;  // payload of repeated PSNs
  Address src;
  Address dst;
  std::uint32_t flow;  // index of the flow, stable over the life of the meter
  std::uint32_t dest_qpn;
  std::uint32_t reverse_flow;  // flow of the same connection the other way, or kNoFlow
  float reverse_confidence;    // 0..1
  std::uint32_t data_packets;  // packets that carry payload or are requests
  std::uint32_t repeat_packets;
  std::uint32_t gap_psns;
  std::uint32_t late_packets;
  std::uint32_t messages;  // ended in this interval, controls excluded
  std::uint32_t controls;
  std::uint32_t read_requests;
  std::uint32_t acks;
  std::uint32_t duplicate_acks;
  std::uint32_t nak_sequence;
  std::uint32_t nak_other;
  std::uint32_t rnr;
  std::uint32_t cnp;
  std::uint32_t ecn_ce;
  std::uint32_t lives;      // times the PSN went back to its start, over the meter's life
  std::uint32_t psn_first;  // first request PSN of the current life
  std::uint32_t psn_next;   // one past the highest request PSN seen
  std::uint32_t psn_acked;  // highest PSN acknowledged by ACKs of THIS flow (the reverse flow's PSNs)
  std::uint16_t udp_sport;
  std::uint8_t family;     // 4 or 6
  std::uint8_t transport;  // BTH opcode >> 5: 0 RC, 1 UC, 3 UD
  std::uint32_t seen;      // bit 0: a request PSN was seen, bit 1: an ACK was seen
};

// One RDMA message of more than one packet, or one larger than a control message.
struct MessageRecord {
  std::int64_t start_ns;  // first packet seen
  std::int64_t end_ns;    // last packet seen
  std::uint64_t bytes;    // RETH.DMALen when known, else payload seen
  std::uint32_t flow;
  std::uint32_t psn;  // of the first packet seen
  std::uint32_t packets;
  std::uint32_t immediate;       // valid with kMessageImmediate
  std::uint8_t opcode;           // of the first packet seen
  std::uint8_t flags;            // MessageFlag
  std::uint16_t life;            // low 16 bits of the flow's life count
  std::uint32_t longest_gap_ns;  // between two packets inside, saturating
};

// A one-packet request of at most kControlMaxBytes: credits, completions, small data.
struct ControlRecord {
  std::int64_t ns;
  std::uint32_t flow;
  std::uint32_t psn;
  std::uint32_t bytes;  // payload
  std::uint32_t immediate;
  std::uint8_t opcode;
  std::uint8_t flags;  // MessageFlag
  std::uint16_t life;
  std::uint32_t reserved;
};

inline constexpr std::uint32_t kControlMaxBytes = 512;

struct BurstRecord {  // packets of one flow with no silence longer than the burst gap
  std::int64_t first_ns;
  std::int64_t last_ns;
  std::uint64_t bytes;
  std::uint32_t flow;
  std::uint32_t packets;
  std::int64_t longest_gap_ns;
};

struct MarkerRecord {  // a packet that both ends choose alike, to compare clocks
  std::int64_t ns;
  std::uint32_t flow;
  std::uint32_t psn;
  std::uint32_t msn;  // of ACK and NAK, else 0
  std::uint8_t kind;  // MarkerKind
  std::uint8_t reserved;
  std::uint16_t life;
};

struct EventRecord {  // `count` packets of one kind in a row
  std::int64_t start_ns;
  std::int64_t end_ns;
  std::uint32_t flow;
  std::uint32_t psn;  // of the first
  std::uint32_t count;
  std::uint8_t kind;  // EventKind
  std::uint8_t reserved[3];
};

struct WindowRecord {  // one non-empty window of one flow, decoded
  std::int64_t start_ns;
  std::uint32_t flow;
  std::uint32_t bytes;
  std::uint32_t packets;
  std::uint32_t reserved;
};

struct PieceRecord {  // windows of one flow of which only the sums are known, decoded
  std::int64_t start_ns;
  std::uint64_t bytes;
  std::uint32_t flow;
  std::uint32_t packets;
  std::uint32_t windows;
  std::uint32_t reserved;
};

enum class HistogramKind : std::uint8_t { gap_ns = 1, message_bytes = 2, ack_ns = 3 };

struct HistogramRecord {  // one non-empty cell
  std::uint32_t flow;
  std::uint32_t count;
  std::uint8_t kind;  // HistogramKind
  std::uint8_t cell;  // log-linear index, see histogram.hpp
  std::uint16_t reserved;
};

// One packet after parsing: what the meter sees, and what tests compare.
struct PacketRecord {
  std::int64_t ns;
  Address src;
  Address dst;
  std::uint32_t wire_bytes;
  std::uint32_t payload_bytes;  // RDMA payload, pad and ICRC excluded
  std::uint32_t dest_qpn;
  std::uint32_t psn;
  std::uint32_t dma_bytes;  // RETH.DMALen, 0 without RETH
  std::uint32_t immediate;
  std::uint32_t msn;
  std::uint32_t src_qpn;  // DETH (UD), else 0
  std::uint16_t udp_sport;
  std::uint8_t opcode;
  std::uint8_t syndrome;  // AETH
  std::uint8_t ecn;       // two bits
  std::uint8_t ack_req;
  std::uint8_t family;
  std::uint8_t outcome;  // ParseOutcome; other fields are valid only for roce
};

static_assert(sizeof(FlowRecord) == 176 && std::is_trivially_copyable_v<FlowRecord>);
static_assert(sizeof(MessageRecord) == 48 && std::is_trivially_copyable_v<MessageRecord>);
static_assert(sizeof(ControlRecord) == 32 && std::is_trivially_copyable_v<ControlRecord>);
static_assert(sizeof(BurstRecord) == 40 && std::is_trivially_copyable_v<BurstRecord>);
static_assert(sizeof(MarkerRecord) == 24 && std::is_trivially_copyable_v<MarkerRecord>);
static_assert(sizeof(EventRecord) == 32 && std::is_trivially_copyable_v<EventRecord>);
static_assert(sizeof(WindowRecord) == 24 && std::is_trivially_copyable_v<WindowRecord>);
static_assert(sizeof(PieceRecord) == 32 && std::is_trivially_copyable_v<PieceRecord>);
static_assert(sizeof(HistogramRecord) == 12 && std::is_trivially_copyable_v<HistogramRecord>);
static_assert(sizeof(PacketRecord) == 80 && std::is_trivially_copyable_v<PacketRecord>);

}  // namespace pulse
