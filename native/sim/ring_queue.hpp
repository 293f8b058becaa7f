// SPDX-License-Identifier: Apache-2.0
//
// A first-in first-out queue in one growing buffer, with access by place.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace pulse::sim {

template <typename T>
class RingQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t place) noexcept { return items_[(head_ + place) & (items_.size() - 1)]; }
  [[nodiscard]] T& front() noexcept { return (*this)[0]; }

  void push_back(T item) {
    if (size_ == items_.size()) grow();
    items_[(head_ + size_) & (items_.size() - 1)] = std::move(item);
    ++size_;
  }

  T pop_front() {
    T item = std::move(front());
    head_ = (head_ + 1) & (items_.size() - 1);
    --size_;
    return item;
  }

  void clear() noexcept { head_ = size_ = 0; }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 4 : 2 * items_.size());
    for (std::size_t place = 0; place < size_; ++place) larger[place] = std::move((*this)[place]);
    items_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> items_;  // a power of two of them, so that places wrap by masking
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace pulse::sim
