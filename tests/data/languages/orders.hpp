#pragma once

#include <map>
#include <string>

namespace acme::orders {

using Key = std::string;

/// What an order is in.
enum class State { Open, Closed };

struct Line {
    std::string name;
    int count = 1;
};

template <typename T>
concept Priced = requires(T a) { a.price(); };

/**
 * Keeps orders by their key. The comment is long, so that the class is too large to stay in one passage and each of its
 * functions gets one of its own.
 */
template <typename T>
class Store final : public Base<T> {
public:
    explicit Store(int limit) : limit_(limit) {}
    virtual ~Store() = default;

    /// Returns the order with a key,
    /// or the default.
    const T& get(const Key& key) const;

    bool put(const Key& key, T order) {
        auto full = [this] { return orders_.size() >= limit_; };
        if (full()) {
            return false;
        }
        orders_[key] = std::move(order);
        return true;
    }

    T& operator[](const Key& key) {
        return orders_[key];
    }

private:
    class Lock {
        int held = 0;
    };

    std::map<Key, T> orders_;
    unsigned limit_;
};

template <typename T>
const T& Store<T>::get(const Key& key) const {
    static const T none{};
    auto found = orders_.find(key);
    return found == orders_.end() ? none : found->second;
}

namespace detail {

inline int* first(int* begin) {
    return begin;
}

}  // namespace detail

}  // namespace acme::orders

void acme::orders::Log::write(const std::string& line) {
    lines.push_back(line);
}

extern "C" int orders_main(void) {
    return 0;
}
