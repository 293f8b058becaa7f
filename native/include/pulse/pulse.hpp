// SPDX-License-Identifier: Apache-2.0
//
// The measurement core as a library: a capture in, records per interval out. Link pulse_core and include this.
//
//   pulse::CaptureReader reader;                  // pcap and pcapng, in chunks of any size
//   pulse::Meter meter(pulse::MeterConfig{});     // one per NIC; one thread at a time
//   pulse::PacketBatch batch;
//   reader.feed(chunk, batch);
//   meter.update_batch(batch, 0, std::nullopt);
//   const pulse::Interval interval = meter.finish(begin_ns, end_ns);
//   const auto rows = pulse::decode_series(interval.series, interval.window_ns, 1U << 24);
//
// Constructors throw std::invalid_argument for what cannot be; decoders of foreign bytes throw it, or
// std::length_error. Nothing else throws but for want of memory. docs/measurement.md says what is kept and what it
// costs; records.hpp what the records hold; tests/library_test.cpp is a whole program.
#pragma once

#include "pulse/capture_reader.hpp"  // CaptureReader: files to batches
#include "pulse/interval.hpp"        // Interval: what a meter hands out
#include "pulse/meter.hpp"           // Meter, MeterConfig: batches to intervals
#include "pulse/packet_batch.hpp"    // PacketBatch: packets in columns
#include "pulse/packet_parser.hpp"   // parse_packet: one packet's headers
#include "pulse/records.hpp"         // the records of an interval
#include "pulse/window_series.hpp"   // decode_series: bytes of a flow per window
