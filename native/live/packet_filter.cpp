// SPDX-License-Identifier: Apache-2.0
#include "live/packet_filter.hpp"

#include <cstddef>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "pulse/opcode_traits.hpp"
#include "pulse/packet_parser.hpp"

namespace pulse::live {
namespace {

// X always holds how many bytes stand before the 14 of a plain Ethernet header, or would if the header in front of X +
// 14 were one: IP begins at X + 14, and behind it, when X has grown by its length, UDP does.
constexpr std::uint32_t kTypeAt = 12;
constexpr std::uint32_t kNetworkAt = 14;
constexpr std::uint32_t kDestinationPortAt = kNetworkAt + 2;
constexpr std::uint32_t kBehindUdpAt = kNetworkAt + 8;
constexpr std::uint32_t kTunnelBytes = 8;
constexpr std::uint32_t kHeadersBehindUdpBytes = 12 + 28;  // BTH, and the longest extension header

constexpr std::uint32_t kUdp = 17;
constexpr std::uint32_t kNextHeaderCell = 1;  // of the scratch memory
constexpr std::uint32_t kOptionsCell = 2;

using Label = std::size_t;

// A little assembler. Conditional jumps reach 255 instructions only, so each is followed by a far one.
class Assembler {
 public:
  [[nodiscard]] Label make_label() {
    targets_.push_back(0);
    return targets_.size() - 1;
  }
  void place(Label label) { targets_[label] = code_.size(); }

  void emit(unsigned operation, std::uint32_t k = 0) {
    code_.push_back({static_cast<std::uint16_t>(operation), 0, 0, k});
  }
  void jump(Label label) {
    fixes_.emplace_back(code_.size(), label);
    emit(BPF_JMP | BPF_JA);
  }
  void jump_if(unsigned condition, std::uint32_t k, Label label) { branch(condition, k, 0, 1, label); }
  void jump_unless(unsigned condition, std::uint32_t k, Label label) { branch(condition, k, 1, 0, label); }

  void load_byte(std::uint32_t behind_x) { emit(BPF_LD | BPF_B | BPF_IND, behind_x); }
  void load_half(std::uint32_t behind_x) { emit(BPF_LD | BPF_H | BPF_IND, behind_x); }
  void load_cell(std::uint32_t cell) { emit(BPF_LD | BPF_MEM, cell); }
  void store_cell(std::uint32_t cell) { emit(BPF_ST, cell); }
  void compute(unsigned operation, std::uint32_t k) { emit(BPF_ALU | operation | BPF_K, k); }
  // X += A.
  void advance_by_a() {
    emit(BPF_ALU | BPF_ADD | BPF_X);
    emit(BPF_MISC | BPF_TAX);
  }
  void advance(std::uint32_t bytes) {
    emit(BPF_LD | BPF_IMM, bytes);
    advance_by_a();
  }

  [[nodiscard]] std::vector<sock_filter> finish() {
    for (const auto& [at, label] : fixes_) code_[at].k = static_cast<std::uint32_t>(targets_[label] - at - 1);
    return std::move(code_);
  }

 private:
  void branch(unsigned condition, std::uint32_t k, std::uint8_t if_true, std::uint8_t if_false, Label label) {
    code_.push_back({static_cast<std::uint16_t>(BPF_JMP | condition | BPF_K), if_true, if_false, k});
    jump(label);
  }

  std::vector<sock_filter> code_;
  std::vector<std::size_t> targets_;
  std::vector<std::pair<std::size_t, Label>> fixes_;
};

// Where one layer of headers, outside or inside a tunnel, hands a packet on.
struct Layer {
  Label link, ipv4, ipv6, udp;
};

struct Exits {
  Label roce, reject;
};

Layer make_layer(Assembler& code) {
  return {code.make_label(), code.make_label(), code.make_label(), code.make_label()};
}

void filter_link(Assembler& code, const Layer& layer, const Exits& exits) {
  code.place(layer.link);
  const Label typed = code.make_label();
  for (int tags = 0; tags < kMaxVlanTags; ++tags) {
    const Label tagged = code.make_label();
    code.load_half(kTypeAt);
    for (const std::uint32_t type : {0x8100U, 0x88a8U, 0x9100U}) code.jump_if(BPF_JEQ, type, tagged);
    code.jump(typed);
    code.place(tagged);
    code.advance(4);
  }
  code.place(typed);
  code.load_half(kTypeAt);
  code.jump_if(BPF_JEQ, 0x0800, layer.ipv4);
  code.jump_if(BPF_JEQ, 0x86dd, layer.ipv6);
  code.jump(exits.reject);
}

void filter_ipv4(Assembler& code, const Layer& layer, const Exits& exits) {
  code.place(layer.ipv4);
  code.load_byte(kNetworkAt);
  code.jump_unless(BPF_JGE, 0x45, exits.reject);
  code.jump_if(BPF_JGE, 0x50, exits.reject);
  code.load_byte(kNetworkAt + 9);
  code.jump_unless(BPF_JEQ, kUdp, exits.reject);
  // The first fragment is taken: that somebody fragments RoCE is worth counting.
  code.load_half(kNetworkAt + 6);
  code.jump_if(BPF_JSET, 0x1fff, exits.reject);
  code.load_byte(kNetworkAt);
  code.compute(BPF_AND, 0x0f);
  code.compute(BPF_LSH, 2);
  code.advance_by_a();
  code.jump(layer.udp);
}

// X is at an extension header whose number is in A and in the cell.
void filter_extension(Assembler& code, const Exits& exits) {
  const Label sized = code.make_label();
  const Label authentication = code.make_label();
  const Label done = code.make_label();
  for (const std::uint32_t kind : {0U, 43U, 60U}) code.jump_if(BPF_JEQ, kind, sized);
  code.jump_if(BPF_JEQ, 51, authentication);
  code.jump_unless(BPF_JEQ, 44, exits.reject);
  code.load_half(kNetworkAt + 2);
  code.jump_if(BPF_JSET, 0xfff8, exits.reject);
  code.load_byte(kNetworkAt);
  code.store_cell(kNextHeaderCell);
  code.advance(8);
  code.jump(done);
  for (const auto& [label, more, shift] : {std::tuple{sized, 1U, 3U}, std::tuple{authentication, 2U, 2U}}) {
    code.place(label);
    code.load_byte(kNetworkAt);
    code.store_cell(kNextHeaderCell);
    code.load_byte(kNetworkAt + 1);
    code.compute(BPF_ADD, more);
    code.compute(BPF_LSH, shift);
    code.advance_by_a();
    code.jump(done);
  }
  code.place(done);
}

void filter_ipv6(Assembler& code, const Layer& layer, const Exits& exits) {
  code.place(layer.ipv6);
  code.load_byte(kNetworkAt);
  code.compute(BPF_AND, 0xf0);
  code.jump_unless(BPF_JEQ, 0x60, exits.reject);
  code.load_byte(kNetworkAt + 6);
  code.store_cell(kNextHeaderCell);
  code.advance(40);
  for (int headers = 0; headers < kMaxFilterExtensions; ++headers) {
    code.load_cell(kNextHeaderCell);
    code.jump_if(BPF_JEQ, kUdp, layer.udp);
    filter_extension(code, exits);
  }
  code.load_cell(kNextHeaderCell);
  code.jump_unless(BPF_JEQ, kUdp, exits.reject);
  code.jump(layer.udp);
}

void filter_udp(Assembler& code, const Layer& layer, const Layer* inner, const Exits& exits) {
  code.place(layer.udp);
  code.load_half(kDestinationPortAt);
  code.jump_if(BPF_JEQ, 4791, exits.roce);
  if (inner == nullptr) {
    code.jump(exits.reject);
    return;
  }
  const Label geneve = code.make_label();
  code.jump_if(BPF_JEQ, 6081, geneve);
  code.jump_unless(BPF_JEQ, 4789, exits.reject);
  code.advance(kBehindUdpAt + kTunnelBytes);
  code.jump(inner->link);

  code.place(geneve);
  code.load_byte(kBehindUdpAt);
  code.compute(BPF_AND, 0x3f);
  code.compute(BPF_LSH, 2);
  code.store_cell(kOptionsCell);
  code.load_half(kBehindUdpAt + 2);
  // Inside is an Ethernet frame or, without one, IP: then X stands as if there were one.
  const std::uint32_t framed = kBehindUdpAt + kTunnelBytes;
  for (const auto& [type, bytes, target] :
       {std::tuple{0x6558U, framed, inner->link}, std::tuple{0x0800U, framed - kNetworkAt, inner->ipv4},
        std::tuple{0x86ddU, framed - kNetworkAt, inner->ipv6}}) {
    const Label next = code.make_label();
    code.jump_unless(BPF_JEQ, type, next);
    code.load_cell(kOptionsCell);
    code.compute(BPF_ADD, bytes);
    code.advance_by_a();
    code.jump(target);
    code.place(next);
  }
  code.jump(exits.reject);
}

void filter_layer(Assembler& code, const Layer& layer, const Layer* inner, const Exits& exits) {
  filter_link(code, layer, exits);
  filter_ipv4(code, layer, exits);
  filter_ipv6(code, layer, exits);
  filter_udp(code, layer, inner, exits);
}

}  // namespace

std::vector<sock_filter> make_filter(Selection selection) {
  Assembler code;
  const Exits exits{code.make_label(), code.make_label()};
  const Layer outer = make_layer(code);
  const Layer inner = make_layer(code);
  code.emit(BPF_LDX | BPF_IMM, 0);
  filter_layer(code, outer, &inner, exits);
  filter_layer(code, inner, nullptr, exits);
  code.place(exits.roce);
  if (selection == Selection::steered) {
    code.load_byte(kBehindUdpAt);
    // Opcodes that mean nothing are taken: the parser counts them.
    for (std::uint32_t value = 0; value < 256; ++value) {
      const auto opcode = static_cast<std::uint8_t>(value);
      if (opcode_layout(opcode).known && opcode_traits(opcode).place == MessagePlace::middle) {
        code.jump_if(BPF_JEQ, opcode, exits.reject);
      }
    }
  }
  code.emit(BPF_MISC | BPF_TXA);
  code.compute(BPF_ADD, kBehindUdpAt + kHeadersBehindUdpBytes);
  code.emit(BPF_RET | BPF_A);
  code.place(exits.reject);
  code.emit(BPF_RET | BPF_K, 0);
  return code.finish();
}

}  // namespace pulse::live
