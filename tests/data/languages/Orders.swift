//
//  Orders.swift
//  Keeps orders in memory.
//

import Foundation

let limit = 3

typealias Key = String

/// What an order is in.
enum State: String {
    case open, closed

    var isOpen: Bool { self == .open }
}

protocol Store {
    associatedtype Order
    func find(_ key: Key, at time: Date) async throws -> Order?
    var count: Int { get }
}

struct Line: Codable {
    let name: String
    var count = 1
}

/// Keeps orders. The comment is long, so that the class is too large to stay in one passage, and each of its functions
/// gets one of its own, as those of large classes do.
@MainActor
public final class MemoryStore<Order>: Store {
    @Published private var orders: [Key: Order] = [:]
    let limit: Int

    init(limit: Int = 3) {
        self.limit = limit
    }

    /// Finds an order.
    @discardableResult
    func find(_ key: Key, at time: Date = Date()) async throws -> Order? {
        func local(_ wanted: Key) -> Order? { orders[wanted] }
        guard orders.count <= limit else { throw StoreError.full(limit) }
        return local(key)
    }

    var count: Int { orders.count }

    enum StoreError: Error {
        case full(Int)
    }
}

extension MemoryStore where Order: Equatable {
    static func empty() -> MemoryStore { MemoryStore(limit: 0) }
}

func total(of lines: [Line]) -> Int {
    lines.reduce(0) { $0 + $1.count }
}
