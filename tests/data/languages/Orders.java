// Copyright 2026 Acme.

package com.acme.orders;

import java.util.Map;
import static java.util.Objects.requireNonNull;

/** Keeps orders by their key. */
@Service
public sealed class Orders<T extends Order> implements Store<T> permits Shop {
    private static final int LIMIT = 3;
    private final Map<String, T> orders = Map.of();

    public Orders(int limit) {
        super(limit);
    }

    /** Finds an order. */
    @Override
    @Nullable
    public T find(String key, Class<? super T>... types) throws Failure {
        Runnable log = () -> { class Local { void no() { } } };
        return switch (key) {
            case "" -> null;
            default -> orders.get(key);
        };
    }

    private int calls;

    // What an order is in.

    enum State {
        OPEN("o") { String label() { return "open"; } }, CLOSED("c");

        private final String code;

        State(String code) { this.code = code; }

        String label() { return code; }
    }

    record Line(String name, int count) {
        Line {
            requireNonNull(name);
        }

        static Line of(String name) { return new Line(name, 1); }
    }

    @interface Audited { String value() default ""; }
}

interface Store<T> {
    T find(String key, Class<? super T>... types) throws Failure;
}
