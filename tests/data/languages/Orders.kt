package com.acme.orders

import java.util.UUID
import kotlinx.coroutines.delay

const val LIMIT = 3

/** The rates by country. */
val RATES = mapOf(
    "is" to 12,
    "ee" to 9,
)

typealias Key = String

/** What an order is in. */
enum class State {
    OPEN,
    CLOSED;

    fun isOpen() = this == OPEN
}

data class Line(val name: String, val count: Int = 1)

interface Store<T : Any> {
    suspend fun find(key: Key): T?
}

/**
 * Keeps orders. The comment is long, so that the class is too large to stay in one passage, and each of its functions
 * gets one of its own, as those of large classes do.
 */
@Serializable
class MemoryStore<T : Any>(private val limit: Int = LIMIT) : Store<T> {
    private val orders = mutableMapOf<Key, T>()

    init {
        require(limit > 0)
    }

    constructor(first: Pair<Key, T>) : this() {
        orders += first
    }

    /** Finds an order. */
    @Deprecated("use get")
    override suspend fun find(key: Key): T? {
        fun local(wanted: Key) = orders[wanted]
        delay(1)
        return local(key)
    }

    val size: Int
        get() = orders.size

    companion object Factory {
        fun <T : Any> of(vararg orders: Pair<Key, T>) = MemoryStore<T>(orders.size)
    }
}

object Registry {
    val stores = mutableListOf<Store<*>>()
}

/** Says it loudly. */
fun String.shout(times: Int = 1): String = uppercase().repeat(times)

fun <T> List<T>?.orEmptyList(): List<T> {
    return this ?: emptyList()
}

fun main() {
    println("orders".shout())
}
